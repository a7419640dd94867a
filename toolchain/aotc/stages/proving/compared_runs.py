"""Which runs of the reference a variant is compared with, and at which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.contract.shapes.domain import Domain, raised_to_buckets
from aotc.errors import AotcError
from aotc.probing.inputs.fixture_plan import lower_edge
from aotc.stages.types import (
    AnalyzedModel,
    ReferenceRun,
)
from aotc.stages.variant_plan import VariantPlan


def compared_runs(
    analyzed: AnalyzedModel, plan: VariantPlan
) -> list[tuple[ReferenceRun, Mapping[str, int]]]:
    """The reference runs that a variant accepts, each with the sizes at which it runs it.

    They are the user's alone where `is_judged_on_data`.  Raises AOTC-S019 if the variant accepts
    padded calls, and none of them could be compared.
    """
    runs = _accepted_runs(analyzed, plan)
    if not is_judged_on_data(analyzed, plan):
        return runs
    return [run for run in runs if run[0].origin == "user"] or runs


def is_judged_on_data(analyzed: AnalyzedModel, plan: VariantPlan) -> bool:
    """Whether generated inputs say nothing of a variant, because ranges in it are of user's data.

    Static quantization cuts off what lies outside of the ranges of the data that it observed, and
    random numbers do: digits between 0 and 1 were off by 0.03 of the largest answer, and normal
    numbers by 0.98.
    """
    static = plan.precision == "int8" and plan.quantization.form in ("auto", "static")
    return static and any(reference.origin == "user" for reference in analyzed.references)


def _accepted_runs(
    analyzed: AnalyzedModel, plan: VariantPlan
) -> list[tuple[ReferenceRun, Mapping[str, int]]]:
    domain = analyzed.domain
    if not any(dim.buckets or dim.pad_from is not None for dim in domain.dims.values()):
        return [(reference, reference.sizes) for reference in analyzed.references]
    runs: list[tuple[ReferenceRun, Mapping[str, int]]] = []
    for reference in analyzed.references:
        compared = _compared_sizes(domain, plan, reference.sizes)
        runs += [(reference, wanted) for wanted in compared]
    if not plan.buckets:
        for buckets in plan.served:
            _require_padded(analyzed, buckets, runs, f"variant {plan.name}")
        return runs
    # If only some buckets are loaded, the smallest calls may go to any of them.
    smallest = min(analyzed.references, key=lambda reference: sum(reference.sizes.values()))
    raised = raised_to_buckets(domain, plan.buckets, smallest.sizes)
    if raised is not None and all(reference is not smallest for reference, _ in runs):
        runs.append((smallest, raised))
    _require_padded(analyzed, plan.buckets, runs, f"variant {plan.name}")
    return runs


def _compared_sizes(
    domain: Domain, plan: VariantPlan, sizes: Mapping[str, int]
) -> list[Mapping[str, int]]:
    """The sizes at which a variant runs a call of `sizes`: in a bucket, and as it is if routed."""
    found: list[Mapping[str, int]] = []
    for buckets in plan.served:
        wanted = domain.padded_sizes(buckets, sizes)
        if wanted is not None and wanted not in found:
            found.append(wanted)
    routed = any(dim.buckets and "route" in dim.outside for dim in domain.dims.values())
    return found if routed else found[:1]


def _require_padded(
    analyzed: AnalyzedModel,
    buckets: Mapping[str, int],
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    where: str,
) -> None:
    """Raise AOTC-S019 if calls are padded to `buckets`, and none of them could be compared."""
    domain = analyzed.domain
    padded = any(
        wanted != reference.sizes and all(wanted.get(name) == buckets[name] for name in buckets)
        for reference, wanted in runs
    )
    if analyzed.padding is not None and not padded and (edge := lower_edge(domain, buckets)):
        raise AotcError(
            "AOTC-S019",
            "padded and unpadded answers could not be compared",
            where=where,
            expected="a size between "
            + " and ".join(
                f"{name}={size} and {name}={domain.dims[name].padded_size(size)}"
                for name, size in edge.items()
            ),
            found="none at which the original model runs",
        )
