"""Lower: from partitions to the files that a session runs: compiled parts, and a graph."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from aotc.backends.base import Backend, Payload
from aotc.contract.manifest.divided_graph import PartitionReport, RefusedNode
from aotc.contract.manifest.variant import DroppedVariant, NodePlacement
from aotc.contract.profile_terms import Precision
from aotc.engine.session import WEIGHTS_PLACEHOLDER
from aotc.errors import EXIT_NO, AotcError
from aotc.graphs import weights
from aotc.graphs.compaction import compact
from aotc.partitioning.compute import Sizes
from aotc.partitioning.extraction import hybrid_model
from aotc.partitioning.partition_report import partition_report
from aotc.passes.base import walk_nodes
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.fallback import dropped_variant
from aotc.stages.lowering.capturing import session_with_graphs
from aotc.stages.lowering.compiling import CompiledModel, compile_parts
from aotc.stages.lowering.memory_plan import memory_plan
from aotc.stages.lowering.session_spec import divided_session, plain_session
from aotc.stages.partition import backends_by_ort_name
from aotc.stages.types import (
    LoweredModel,
    PartitionedModel,
    UndividedModel,
)
from aotc.stages.variant_plan import VariantPlan
from aotc.stages.weight_files import SHARED


def lower(
    variants: Sequence[PartitionedModel | UndividedModel], options: BuildOptions
) -> tuple[
    tuple[LoweredModel, ...],
    tuple[DroppedVariant, ...],
    tuple[tuple[VariantPlan, AotcError], ...],
]:
    """Compile partitions where a provider compiles, and write each variant's final graph.

    Constants that are read only by compiled parts, which contain them, are removed from the
    weights.  The second result are the variants that the fallback policy leaves out, the third the
    refusals of those that it does not: P001 (undivided), P005 (compilation), P014 (capture).  What
    `compile_parts` raises otherwise is raised.
    """
    lowered: list[LoweredModel] = []
    dropped: list[DroppedVariant] = []
    refused: list[tuple[VariantPlan, AotcError]] = []

    def drop(error: AotcError, plan: VariantPlan) -> None:
        """Leave a variant out; its refusal ends the build, but only after the others are judged."""
        try:
            dropped.append(dropped_variant(error, plan, options))
        except AotcError as refusal:
            if refusal.exit_status != EXIT_NO:
                raise
            refused.append((plan, refusal))

    for item in variants:
        if isinstance(item, UndividedModel):
            drop(item.refusal, item.plan)
            continue
        backends = backends_by_ort_name(item.plan, options)
        if item.division is None:
            (backend,) = backends.values()
            lowered.append(_lower_undivided(item, backend))
            continue
        try:
            compiled = compile_parts(item.claimed, item.division, backends, options)
        except AotcError as error:
            drop(error, item.plan)
            continue
        try:
            lowered.append(_lower_divided(compiled, backends, options))
        except AotcError as error:
            drop(error, item.plan)
    if any(item.contexts for item in lowered):
        lowered = _drop_unread_weights(lowered, variants[0].claimed.weights, options)
    return tuple(lowered), tuple(dropped), tuple(refused)


def _drop_unread_weights(
    lowered: Sequence[LoweredModel], weights_folder: Path, options: BuildOptions
) -> list[LoweredModel]:
    """The variants with a folder of weights that contains only what they read."""
    kept = options.work / "weights-kept"
    shared = [item for item in lowered if SHARED in item.files and _reads_by_offset(item)]
    complete = {SHARED} if shared else set()
    compact([item.model for item in lowered], weights_folder, kept, unchanged_files=complete)
    result = []
    for item in lowered:
        files = {*_weight_files(item.model), *(complete if _reads_by_offset(item) else ())}
        result.append(replace(item, files=tuple(sorted(files)), weights=kept))
    return result


def _reads_by_offset(item: LoweredModel) -> bool:
    """Whether compiled parts read the shared weights by offset."""
    options = item.session.provider_options.values()
    return any(WEIGHTS_PLACEHOLDER in text for stated in options for text in stated.values())


def _weight_files(model: Path) -> tuple[str, ...]:
    return weights.external_locations(onnx.load(model, load_external_data=False))


def _lower_undivided(item: PartitionedModel, backend: Backend) -> LoweredModel:
    """The lowered variant if one provider runs all nodes and compiles none."""
    claimed = item.claimed
    model = onnx.load(claimed.graph, load_external_data=False)
    path = claimed.graph.with_name("lowered.onnx")
    shutil.copyfile(claimed.graph, path)
    return LoweredModel(
        partitioned=item,
        model=path,
        weights=claimed.weights,
        files=weights.external_locations(model),
        session=plain_session(backend, item.plan),
        memory=memory_plan(model, claimed),
        providers=claimed.providers,
    )


def _lower_divided(
    compiled: CompiledModel, backends: Mapping[str, Backend], options: BuildOptions
) -> LoweredModel:
    """The lowered variant whose compiled parts are nodes among those of other providers."""
    claimed, assignment = compiled.claimed, compiled.division.assignment
    plan = claimed.plan
    folder = options.work / f"lower-{plan.name}"
    folder.mkdir()
    payloads = _joined_payloads(compiled, backends, folder)
    compatibility = _compatibility(compiled, payloads)
    contexts: dict[int, tuple[str, Mapping[str, str | int]]] = {
        index: (compiled.names[index], payload.attributes) for index, payload in payloads.items()
    }
    graph = compiled.division.graph
    model = hybrid_model(compiled.model, graph, assignment.parts, contexts, compatibility)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    precisions: dict[str, Precision] = {
        name: backend.computes_in(plan.precision) for name, backend in backends.items()
    }
    running = {*(part.provider for part in assignment.parts), *assignment.providers.values()}
    used = {name: backend for name, backend in backends.items() if name in running}
    planned = _planned_placement(model, compiled, claimed.sizes[0]) if claimed.sizes else ()
    session, refused = session_with_graphs(
        divided_session(used, precisions, payloads, compiled),
        plan,
        model,
        {node.name: node.provider for node in planned},
    )
    files = set(weights.external_locations(model))
    if any(payload.options for payload in payloads.values()):
        files.update(file.name for file in claimed.weights.iterdir() if file.name == SHARED)
    return LoweredModel(
        partitioned=PartitionedModel(claimed=claimed, division=compiled.division),
        model=path,
        weights=claimed.weights,
        files=tuple(sorted(files)),
        session=session,
        memory=memory_plan(compiled.model, claimed),
        contexts=tuple(sorted({folder / name for p in payloads.values() for name in p.files})),
        compatibility=compatibility,
        needs=tuple(
            backend.needs(options.target, precisions[name]) for name, backend in used.items()
        ),
        providers=tuple(used),
        device="gpu" if any(backend.device == "gpu" for backend in used.values()) else "cpu",
        report=_partition_report(compiled, payloads, backends),
        planned_placement=planned,
        why_not_run="; ".join(
            f"{backend.name}: {why}"
            for backend in used.values()
            if (why := backend.probe().why_not)
        ),
        findings=(*compiled.findings, *refused),
    )


def _joined_payloads(
    compiled: CompiledModel, backends: Mapping[str, Backend], folder: Path
) -> dict[int, Payload]:
    """Payloads with their files in `folder`, joined by their provider."""
    parts = compiled.division.assignment.parts
    result: dict[int, Payload] = {}
    for name, backend in backends.items():
        indices = [index for index in compiled.payloads if parts[index].provider == name]
        for index in indices:
            for file in compiled.payloads[index].files:
                shutil.copyfile(compiled.folders[index] / file, folder / file)
        joined = backend.join([compiled.payloads[i] for i in indices], folder, backend.name)
        result |= dict(zip(indices, joined, strict=True))
    return result


def _compatibility(compiled: CompiledModel, payloads: Mapping[int, Payload]) -> dict[str, str]:
    parts = compiled.division.assignment.parts
    found: dict[str, str] = {}
    for index, payload in payloads.items():
        if payload.compatibility:
            provider = parts[index].provider
            if found.setdefault(provider, payload.compatibility) != payload.compatibility:
                raise RuntimeError(f"{provider} gives two compatibility strings in one build")
    return found


def _partition_report(
    compiled: CompiledModel, payloads: Mapping[int, Payload], backends: Mapping[str, Backend]
) -> PartitionReport:
    claimed, assignment = compiled.claimed, compiled.division.assignment
    assert claimed.sizes is not None
    refusals = [
        refusal
        for refusal in compiled.division.refusals
        if assignment.providers.get(refusal.node) != refusal.provider
    ]
    refusals += _reassigned(compiled)
    return partition_report(
        compiled.division.graph,
        assignment,
        claimed.sizes,
        names=compiled.names,
        compiled={index: payload.files[0] for index, payload in payloads.items()},
        devices={name: backend.device for name, backend in backends.items()},
        refusals=refusals,
        how=claimed.how,
    )


def _reassigned(compiled: CompiledModel) -> list[RefusedNode]:
    """Nodes that a provider claimed, but partitioning assigned to another."""
    claimed, assignment = compiled.claimed, compiled.division.assignment
    ops = dict(claimed.optimized.nodes)
    found = []
    for node, why in assignment.reassigned.items():
        claimant = next(name for name, nodes in claimed.claims if node in nodes)
        if claimant != assignment.providers[node]:
            found.append(
                RefusedNode(node=node, op=ops.get(node, ""), provider=claimant, reason=why)
            )
    return found


def _planned_placement(
    model: onnx.ModelProto, compiled: CompiledModel, sizes: Sizes
) -> tuple[NodePlacement, ...]:
    """The planned provider of each node of the final graph."""
    graph, assignment = compiled.division.graph, compiled.division.assignment
    provider_by_node = dict(assignment.providers)
    flops = {name: cost.flops for name, cost in sizes.nodes.items()}
    for part, name in zip(assignment.parts, compiled.names, strict=True):
        provider_by_node.setdefault(name, part.provider)
        nodes = [graph.nodes[index] for index in part.nodes]
        inside = [name for node in nodes for name in (node.name, *node.inner_nodes)]
        flops[name] = sum(flops.get(name, 0) for name in inside)
    return tuple(
        NodePlacement(
            name=node.name,
            op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
            provider=provider_by_node[node.name],
            flops=flops.get(node.name, 0),
        )
        for node in walk_nodes(model)
        if node.name in provider_by_node
    )
