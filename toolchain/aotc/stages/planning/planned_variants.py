"""The variants to build: those of the profile, each for every combination of buckets."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from aotc.contract.finding import Finding
from aotc.contract.profile_terms import Precision, WantedPrecision
from aotc.contract.shapes.bucket_choice import sizes_in_graph
from aotc.contract.shapes.dim_range import DimRange
from aotc.engine.named_backends import backend_of
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.available import is_built_here
from aotc.stages.planning.quantized_forms import observes
from aotc.stages.types import (
    AnalyzedModel,
    ReferenceRun,
)
from aotc.stages.variant_plan import VariantPlan, wanted_in_float32

# The maximum length of dim names in a variant's name, which is part of folder names.
_MAX_LENGTH: Final = 100
_DYNAMIC: Final[Mapping[str, int]] = {}


def wanted_variants(
    ranges: Mapping[str, DimRange], options: BuildOptions
) -> tuple[tuple[VariantPlan, ...], tuple[Finding, ...]]:
    """The variants that this host can build, and AOTC-O002 for each that it cannot.

    `ranges` are what the profile states of the model's dims.  The variant for all sizes comes
    first, then one for each combination of buckets; it is omitted if no call is routed to it.  A
    variant that captures sizes as CUDA graphs takes those of all combinations itself.
    Raises AOTC-I022 if two variants have one name, P004 if none is left, and P007.
    """
    host, target = options.host, options.target
    bucketed = {name: spec.buckets for name, spec in ranges.items() if spec.buckets}
    # A single empty combination if no dim has buckets.
    chosen = tuple(
        dict(zip(bucketed, sizes, strict=True)) for sizes in itertools.product(*bucketed.values())
    )
    combinations: list[Mapping[str, int]] = [*chosen]
    if bucketed and any(spec.routes for spec in ranges.values()):
        combinations.insert(0, _DYNAMIC)
    plans, findings = [], []
    for spec in options.profile.variants:
        order = spec.providers or options.profile.providers
        if not is_built_here(spec, options):
            findings.append(
                Finding(
                    code="AOTC-O002",
                    what=f"this host is not the target {target.name}",
                    where=spec.name,
                )
            )
            continue
        cuda = spec.cuda or options.profile.cuda
        captures = options.profile.captures_sizes(spec)
        providers = _with_cpu(order, options)
        precision = _concrete(spec.precision or options.profile.precision)
        quantization = spec.quantization or options.profile.quantization
        backends = [backend_of(each, options.profile.plugins) for each in providers]
        for buckets in [_DYNAMIC] if captures else combinations:
            name = f"{spec.name}.{bucket_suffix(buckets)}" if buckets else spec.name
            plans.append(
                VariantPlan(
                    name=name,
                    spec=spec.name,
                    isa=spec.isa,
                    prepack=spec.prepack,
                    buckets=buckets,
                    providers=providers,
                    precision=precision,
                    quantization=quantization,
                    keep_float32=wanted_in_float32(spec, options.profile),
                    threads=spec.threads,
                    optimization=spec.optimization,
                    may_lower_level=spec.optimization == "auto",
                    cuda=cuda,
                    # One beside static variants takes the sizes that none of them captures.
                    captures=chosen if captures else (buckets,) if buckets or not bucketed else (),
                    may_be_static=observes(precision, quantization, backends),
                )
            )
    if not plans:
        raise AotcError(
            "AOTC-P004",
            "no variant of the profile can be built for this target here",
            where="target",
            expected=f"a build host with the CPU features of {target.name}",
            found=", ".join(host.isa or ()),
            fix="Build on a host like the target, or add a variant for any CPU to the profile.",
        )
    # They name folders, and not every system distinguishes case.
    names = Counter(plan.name.lower() for plan in plans)
    duplicates = [plan.name for plan in plans if names[plan.name.lower()] > 1]
    if duplicates:
        raise AotcError(
            "AOTC-I022",
            f"two variants get the name {duplicates[0]!r}",
            where="variants",
            fix="Give one of the profile's variants another name.",
        )
    return tuple(plans), tuple(findings)


def _concrete(wanted: WantedPrecision) -> Precision:
    """The precision of a plan: `auto` has been chosen by then, and is `keep` where it was not."""
    return "keep" if wanted == "auto" else wanted


def _with_cpu(order: tuple[str, ...], options: BuildOptions) -> tuple[str, ...]:
    """`order`, followed by the CPU if the fallback policy gives it the remaining nodes."""
    allowed = options.profile.fallback.policy == "cpu"
    return (*order, "cpu") if allowed and "cpu" not in order else order


def bucket_suffix(buckets: Mapping[str, int]) -> str:
    """The name of a combination of buckets in files and components, such as `batch2-seq64`."""
    words = [re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:32] for name in buckets]
    if len(set(words)) < len(words) or not all(words) or sum(map(len, words)) > _MAX_LENGTH:
        words = [f"dim{index}" for index in range(len(words))]
    return "-".join(
        f"{word}_{size}" if word[-1].isdigit() else f"{word}{size}"
        for word, size in zip(words, buckets.values(), strict=True)
    )


def accepts_run(analyzed: AnalyzedModel, plan: VariantPlan, reference: ReferenceRun) -> bool:
    """Whether a variant accepts the sizes of a reference run, padded if necessary."""
    return sizes_in_graph(analyzed.domain, plan.served, reference.sizes) is not None
