"""The form in which a variant is quantized, and whether its providers run models of that form."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.backends.base import Backend
from aotc.contract.finding import Finding
from aotc.contract.precision.quantization import QuantizedForm
from aotc.contract.profile import Profile
from aotc.contract.profile_terms import WantedPrecision
from aotc.engine.named_backends import backend_of
from aotc.errors import AotcError
from aotc.passes.half_precision.half_types import HALF_TYPES
from aotc.stages.build_options import BuildOptions
from aotc.stages.calibrating.calibration_data import require_calibration
from aotc.stages.planning.available import is_built_here
from aotc.stages.planning.quantized_forms import form_of, observes
from aotc.stages.variant_plan import VariantPlan


def has_samples(options: BuildOptions) -> bool:
    """Whether the user gave inputs to observe activations on."""
    return options.calibration is not None or options.fixtures is not None


def quantized_form(plan: VariantPlan, options: BuildOptions) -> QuantizedForm:
    """The form of a variant in int8 or int4; raises AOTC-P007."""
    backends = [backend_of(name, options.profile.plugins) for name in plan.providers]
    return form_of(plan.precision, plan.quantization, backends, samples=has_samples(options))


def require_form(
    precision: WantedPrecision, form: QuantizedForm, backends: Sequence[Backend]
) -> None:
    """Raise AOTC-N008 with the first of `backends` that runs no model of that form."""
    for backend in backends:
        if form not in backend.quantized.get(precision, ()):
            raise AotcError(
                "AOTC-N008",
                f"{backend.name} does not run models in {precision} of the form {form}",
                where="precision",
                expected=f"{backend.name}: {', '.join(backend.abilities())}",
                found=f"{precision} ({form})",
                fix="Choose a precision or a form that all providers of the variant run, or leave "
                f"{backend.name} out of its providers.",
            )


def require_quantization(options: BuildOptions, *, tune: bool) -> None:
    """What variants of the profile need to be quantized, before a model is read.

    With `tune`, a variant of other providers may be chosen.  Raises AOTC-I001 and I072 (there is no
    calibration data), N008 (a provider runs no model of that form) and P007.
    """
    require_calibration(options)
    profile = options.profile
    for spec in () if tune else profile.variants:
        precision = spec.precision or profile.precision
        if precision not in ("int8", "int4") or not is_built_here(spec, options):
            continue
        names = spec.providers or profile.providers
        backends = [backend_of(name, profile.plugins) for name in names]
        stated = spec.quantization or profile.quantization
        form = form_of(precision, stated, backends, samples=has_samples(options))
        require_form(precision, form, backends)


def may_be_static(profile: Profile, *, tune: bool) -> bool:
    """Whether a variant, or with `tune` a candidate of one, may be quantized statically.

    Raises AOTC-P007.
    """
    specs = profile.variants
    if tune and "int8" in profile.tune.precision:
        stated = {(spec.quantization or profile.quantization).form for spec in specs}
        if stated & {"auto", "static"}:
            return True
    return any(
        observes(
            spec.precision or profile.precision,
            spec.quantization or profile.quantization,
            [backend_of(name, profile.plugins) for name in spec.providers or profile.providers],
        )
        for spec in specs
    )


def is_observing(options: BuildOptions) -> bool:
    """Whether a variant, or a candidate of one, may observe activations on the user's samples."""
    wanted = options.tries_static or may_be_static(options.profile, tune=False)
    return wanted and has_samples(options)


def unused_calibration(options: BuildOptions) -> tuple[Finding, ...]:
    """AOTC-N019 if there is calibration data that no variant observes anything on."""
    if options.calibration is None or is_observing(options) or options.tries_half:
        return ()
    what = "no variant observes activations on it, so it is not read"
    return (Finding(code="AOTC-N019", what=what, where="calibration"),)


def observes_half(profile: Profile, *, tune: bool) -> bool:
    """Whether a variant, or with `tune` a candidate of one, may compute in half precision.

    Then the range of each value matters.  On the CPU alone half precision is storage, and of a
    provider that has all nodes to itself, and one type for them, none is kept from it.
    """
    tried = set(profile.tune.precision)
    for spec in profile.variants:
        stated = spec.precision or profile.precision
        if HALF_TYPES.keys().isdisjoint({stated, *(tried if tune or stated == "auto" else ())}):
            continue
        names = spec.providers or profile.providers
        by_types = backend_of(names[0], profile.plugins).half_by_types
        if names[0] != "cpu" and (by_types or names[1:]):
            return True
    return False
