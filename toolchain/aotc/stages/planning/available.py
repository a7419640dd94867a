"""Whether the execution providers of a build are available, checked before a model is read."""

from __future__ import annotations

from collections.abc import Iterable

from aotc.contract.profile import VariantSpec
from aotc.engine.named_backends import backend_of, backends_of
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions


def is_built_here(spec: VariantSpec, options: BuildOptions) -> bool:
    """Whether this host builds a variant of the profile for the target.

    Level ALL fixes the layout for the CPU of the build, and some providers compile for that CPU
    alone, so host and target must be alike.  Raises AOTC-P007.
    """
    host, target = options.host, options.target
    if host.architecture == target.architecture and set(host.isa or ()) == set(target.isa or ()):
        return True
    order = spec.providers or options.profile.providers
    native = any(backend_of(name, options.profile.plugins).native for name in order)
    return spec.isa != "host" and not native


def require_providers(specs: Iterable[VariantSpec], options: BuildOptions) -> None:
    """Raise AOTC-P004 if a variant that is built here needs a provider that this host lacks.

    Raises AOTC-P007 for an unknown provider.
    """
    backends_of(_named(specs, options), options.profile)


def require_measurable(specs: Iterable[VariantSpec], options: BuildOptions) -> None:
    """Raise AOTC-O020 if a candidate of `--tune` has a provider that this host cannot run.

    A profile means the same on every host: such a candidate must not lose for that.
    """
    for name in _named(specs, options):
        found = backend_of(name, options.profile.plugins).probe()
        if not found.runs:
            raise AotcError(
                "AOTC-O020",
                f"--tune measures, and {name} does not run here",
                expected=f"a machine that runs {name}",
                found=found.why_not,
                place=options.places.of("providers"),
            )


def _named(specs: Iterable[VariantSpec], options: BuildOptions) -> tuple[str, ...]:
    """The providers of variants that are built here, each once."""
    orders = (
        spec.providers or options.profile.providers
        for spec in specs
        if is_built_here(spec, options)
    )
    return tuple(dict.fromkeys(name for order in orders for name in order))
