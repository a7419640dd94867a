"""Specialize: one graph per variant, with its fixed sizes written in, and weights stored once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import onnx

from aotc.base.records import replace
from aotc.graph import weights
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.plan import bucket_suffix
from aotc.pipeline.types import AnalyzedModel, OptimizedModel, SpecializedModel, VariantPlan
from aotc.spec.shapes import Dim, Domain
from aotc.spec.target import Target

_ISA_NAMES = (
    ("amx_tile", "amx"),
    ("avx512_vnni", "avx512vnni"),
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("sve", "sve"),
    ("i8mm", "i8mm"),
    ("asimddp", "dotprod"),
)
SHARED: Final = "weights.bin"


def specialize(
    analyzed: AnalyzedModel, plan: VariantPlan, context: BuildContext
) -> SpecializedModel:
    """The staged graph of `analyzed` with all dims fixed that have one size in this variant."""
    from aotc.graph.passes.base import Pass, run_passes
    from aotc.graph.passes.with_sizes import FixDims, FoldShapes, WriteInPlace

    source = analyzed.source
    domain = variant_domain(analyzed.domain, plan)
    sizes = _fixed_sizes(domain or analyzed.domain)
    graph, records = source.graph, source.passes
    passes: list[Pass] = [FixDims(sizes=sizes), FoldShapes()] if sizes else []
    if sizes or source.capture.op_types.get("ScatterND"):
        model = onnx.load(source.graph, load_external_data=False)
        in_place = WriteInPlace()
        passes += [in_place] if in_place.has_work(model) else []
    if passes:
        records += run_passes(model, passes)
        name = bucket_suffix(plan.buckets) if plan.buckets else "all"
        graph = source.graph.with_name(f"static-{name}.onnx")
        graph.write_bytes(model.SerializeToString(deterministic=True))
    return SpecializedModel(
        analyzed=analyzed,
        plan=plan,
        domain=domain,
        component=_component(plan, context),
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


def _shares_provider(plan: VariantPlan, context: BuildContext) -> bool:
    """Whether an earlier variant of the profile has the same first provider and ISA."""
    for spec in context.profile.variants:
        if spec.name == plan.spec:
            return False
        first = (spec.providers or context.profile.providers)[0]
        if (first, spec.isa) == (plan.providers[0], plan.isa):
            return True
    return False


def isa_name(target: Target) -> str:
    """The name for CPUs like the target's, in components of variants."""
    return cpu_name(target.isa or ()) or "native"


def cpu_name(features: Collection[str]) -> str:
    """The name for CPUs with these features; empty if none of them has one."""
    return next((name for feature, name in _ISA_NAMES if feature in features), "")


def _component(plan: VariantPlan, context: BuildContext) -> str:
    """`model` for the first variant of a provider that runs anywhere; other names say what differs.

    ORT selects the first variant of a provider in a component, whatever else it is for.
    """
    parts = ["model"]
    if _shares_provider(plan, context):
        parts.append(plan.spec)
    if plan.isa == "host":
        parts.append(isa_name(context.target))
    if plan.buckets:
        parts.append(bucket_suffix(plan.buckets))
    return ".".join(parts)


# The weights of all variants, each content stored once, before anything is compiled with them.


def place_weights(
    variants: Sequence[OptimizedModel], state: BuildState
) -> tuple[Path, tuple[Path, ...]]:
    """The folder of the weights, and for each variant a graph that refers to the files in it.

    Weights of one variant only get a file of their own, so that loading another does not read them.
    """
    folder = state.work / "weights"
    folder.mkdir()
    graphs = [onnx.load(item.graph, load_external_data=False) for item in variants]
    store_weights(
        graphs,
        [item.data for item in variants],
        [item.tensors for item in variants],
        [(item.plan.spec, item.plan.name) for item in variants],
        folder,
    )
    placed = []
    for item, graph in zip(variants, graphs, strict=True):
        path = item.graph.with_name("placed.onnx")
        path.write_bytes(graph.SerializeToString(deterministic=True))
        placed.append(path)
    return folder, tuple(placed)


def store_weights(
    graphs: Sequence[onnx.ModelProto],
    data: Sequence[Path],
    keys: Sequence[Sequence[str]],
    named: Sequence[tuple[str, str]],
    folder: Path,
) -> None:
    """Move the external tensors of `graphs` into files of `folder`, each content once.

    Of each graph, `data` is its external file, which is gone then; `keys` are those of
    `weights.place_tensors`; `named` has the profile's variant that it belongs to, and its own name.
    """
    if len(graphs) == 1:
        weights.adopt_file(graphs[0], data[0], folder, SHARED)
        return
    specs = [spec for spec, _ in named]
    bases = {spec: keys[specs.index(spec)] for spec in dict.fromkeys(specs)}
    first, *others = bases.values()
    placed: dict[str, tuple[str, int]] = {}
    if all(set(keys_of_base) == set(first) for keys_of_base in others):
        # The variants share everything that the first one reads: its file is used as it is.
        weights.adopt_file(graphs[0], data[0], folder, SHARED)
        placed = weights.tensor_places(graphs[0], keys[0])
    users = Counter(key for keys_of_base in bases.values() for key in set(keys_of_base))
    for (spec, name), graph, file, own in zip(named, graphs, data, keys, strict=True):
        names = (f"{spec}.bin", f"{name}.bin")
        known = frozenset(bases[spec])

        def file_of(key: str, names: tuple[str, str] = names, known: frozenset[str] = known) -> str:
            if users[key] > 1:
                return SHARED
            return names[0] if key in known else names[1]

        weights.place_tensors(graph, file, own, folder, file_of, placed)
    for file in data:
        file.unlink(missing_ok=True)
