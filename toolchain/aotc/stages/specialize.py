"""Specialize: one graph per variant, with its fixed sizes written in."""

from __future__ import annotations

from aotc.contract.shapes.domain import Dim, Domain
from aotc.contract.target import Target
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.planned_variants import bucket_suffix
from aotc.stages.types import (
    AnalyzedModel,
    SpecializedModel,
)
from aotc.stages.variant_plan import VariantPlan

_ISA_NAMES = (
    ("amx_tile", "amx"),
    ("avx512_vnni", "avx512vnni"),
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("sve", "sve"),
    ("i8mm", "i8mm"),
    ("asimddp", "dotprod"),
)


def specialize(
    analyzed: AnalyzedModel, plan: VariantPlan, options: BuildOptions
) -> SpecializedModel:
    """The staged graph of `analyzed` with all dims fixed that have one size in this variant."""
    import onnx

    from aotc.passes.base import run_passes
    from aotc.passes.fix_dims import FixDims
    from aotc.passes.fold_shapes import FoldShapes

    source = analyzed.source
    domain = variant_domain(analyzed.domain, plan)
    sizes = _fixed_sizes(domain or analyzed.domain)
    graph, records = source.graph, source.passes
    if sizes:
        model = onnx.load(source.graph, load_external_data=False)
        records += run_passes(model, (FixDims(sizes=sizes), FoldShapes()))
        name = bucket_suffix(plan.buckets) if plan.buckets else "all"
        graph = source.graph.with_name(f"static-{name}.onnx")
        graph.write_bytes(model.SerializeToString(deterministic=True))
    return SpecializedModel(
        analyzed=analyzed,
        plan=plan,
        domain=domain,
        component=_component(plan, options),
        graph=graph,
        passes=records,
    )


def variant_domain(domain: Domain, plan: VariantPlan) -> Domain | None:
    """The sizes that a variant's graph accepts; None if no dim of `domain` has buckets."""
    if not any(dim.buckets for dim in domain.dims.values()):
        return None
    return replace(
        domain, dims={name: _variant_dim(dim, plan, name) for name, dim in domain.dims.items()}
    )


def _variant_dim(dim: Dim, plan: VariantPlan, name: str) -> Dim:
    size = plan.buckets.get(name)
    if size is not None:
        return Dim(min=size, max=size, opt=size, origin="stated", tested=(size,))
    # Padding happens before a graph gets its inputs.
    return replace(dim, buckets=(), outside=(), pad_from=None)


def _fixed_sizes(domain: Domain) -> dict[str, int]:
    """Dims with one stated size, and those that follow from such dims alone."""
    sizes = {
        name: dim.min
        for name, dim in domain.dims.items()
        if dim.origin == "stated" and dim.min == dim.max
    }
    for relation in domain.relations:
        if relation.enforced and all(term in sizes for term in relation.terms):
            sizes[relation.dim] = relation.value(sizes)
    return sizes


def _shares_provider(plan: VariantPlan, options: BuildOptions) -> bool:
    """Whether an earlier variant of the profile has the same first provider and ISA."""
    for spec in options.profile.variants:
        if spec.name == plan.spec:
            return False
        first = (spec.providers or options.profile.providers)[0]
        if (first, spec.isa) == (plan.providers[0], plan.isa):
            return True
    return False


def isa_name(target: Target) -> str:
    """The name for CPUs like the target's, in components of variants."""
    features = set(target.isa or ())
    return next((name for feature, name in _ISA_NAMES if feature in features), "native")


def _component(plan: VariantPlan, options: BuildOptions) -> str:
    """`model` for the first variant of a provider that runs anywhere; other names say what differs.

    ORT selects the first variant of a provider in a component, whatever else it is for.
    """
    parts = ["model"]
    if _shares_provider(plan, options):
        parts.append(plan.spec)
    if plan.isa == "host":
        parts.append(isa_name(options.target))
    if plan.buckets:
        parts.append(bucket_suffix(plan.buckets))
    return ".".join(parts)
