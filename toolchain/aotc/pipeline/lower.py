"""Lower: from partitions to the files that a session runs: compiled parts, and a graph."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import onnx

from aotc.base.errors import EXIT_NO, AotcError, Place
from aotc.base.records import replace
from aotc.graph import weights
from aotc.graph.model import tensors
from aotc.graph.partition.assignment import Sizes
from aotc.graph.partition.division import partition_report
from aotc.graph.partition.extraction import hybrid_model
from aotc.graph.view import every_node, has_subgraphs, shape_nodes
from aotc.pipeline.compile import CompiledModel, compile_parts
from aotc.pipeline.optimizer_settings import is_convolutional, load_level
from aotc.pipeline.options import BuildOptions
from aotc.pipeline.partition import backends_by_ort_name
from aotc.pipeline.specialize import SHARED
from aotc.pipeline.types import (
    ClaimedModel,
    LoweredModel,
    PartitionedModel,
    UndividedModel,
    VariantPlan,
)
from aotc.providers.base import Backend, Payload, SessionUse
from aotc.session.sessions import WEIGHTS_PLACEHOLDER
from aotc.sizes.inputs.fixtures import shape_of
from aotc.spec.payload import Finding
from aotc.spec.precision import Precision
from aotc.spec.providers import CAPTURING, GRAPH_OPTION, SIZED_BY_VALUES
from aotc.spec.variant import (
    DroppedVariant,
    MemoryPlan,
    NodePlacement,
    PartitionReport,
    RefusedNode,
    SessionSpec,
)

_CAPTURING: Final = CAPTURING.ort_name
_MAX_NAMED: Final = 5
# Bytes of an element, by type.
_WIDTHS: Final[Mapping[str, int]] = {
    "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "complex64": 8, "complex128": 16,
}  # fmt: skip
_DISABLE_PREPACKING = "session.disable_prepacking"
# Codes of placement: a variant that computes wrongly is never merely left out.
_PLACEMENT_CODES = frozenset({"AOTC-P001", "AOTC-P002", "AOTC-P005", "AOTC-P014"})


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
    weights.compact(
        [item.model for item in lowered], weights_folder, kept, unchanged_files=complete
    )
    result = []
    for item in lowered:
        model = onnx.load(item.model, load_external_data=False)
        files = {*weights.external_locations(model), *(complete if _reads_by_offset(item) else ())}
        result.append(replace(item, files=tuple(sorted(files)), weights=kept))
    return result


def _reads_by_offset(item: LoweredModel) -> bool:
    """Whether compiled parts read the shared weights by offset."""
    options = item.session.provider_options.values()
    return any(WEIGHTS_PLACEHOLDER in text for stated in options for text in stated.values())


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
        session=_with_plan(backend.session(load_level(item.plan)), item.plan),
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
        inside = [name for node in nodes for name in (node.name, *graph.inside.get(node.name, ()))]
        flops[name] = sum(flops.get(name, 0) for name in inside)
    return tuple(
        NodePlacement(
            name=node.name,
            op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
            provider=provider_by_node[node.name],
            flops=flops.get(node.name, 0),
        )
        for node in every_node(model)
        if node.name in provider_by_node
    )


# Whether ONNX Runtime can capture a variant's runs as CUDA graphs, and the option that allows it.
#
# ONNX Runtime refuses a session with that option if a node with a subgraph remains, or if values
# are copied between the GPU and the CPU. Nodes on the CPU that compute shapes do no harm: their
# values are read there.


def session_with_graphs(
    session: SessionSpec,
    plan: VariantPlan,
    model: onnx.ModelProto,
    providers: Mapping[str, str],
) -> tuple[SessionSpec, tuple[Finding, ...]]:
    """`session` with CUDA graphs if `plan` wants them; `providers` are those of the nodes by name.

    If `model` cannot be captured, the session stays as it is, and a finding AOTC-P014 says why; or
    that is raised, if the plan says so.
    """
    if not plan.wants_graphs:
        return session, ()
    obstacles = uncapturable(model, providers)
    if not obstacles:
        options = {
            **session.provider_options,
            _CAPTURING: {**session.provider_options.get(_CAPTURING, {}), GRAPH_OPTION: "1"},
        }
        return replace(session, provider_options=options), ()
    where, nodes = f"variant {plan.name}", _listed(obstacles)
    if plan.cuda.graphs.on_refusal == "fail":
        raise not_capturable(where, nodes)
    return session, (without_graphs(where, nodes),)


def not_capturable(where: str, why: str, place: Place | None = None) -> AotcError:
    """AOTC-P014, of a variant that is refused for it."""
    return AotcError(
        "AOTC-P014",
        "the graph cannot be captured as CUDA graphs",
        where=where,
        expected="every node on CUDA, except those that compute shapes, and no control flow",
        found=why,
        place=place,
    )


def without_graphs(where: str, why: str) -> Finding:
    """AOTC-P014, of a variant that runs without graphs."""
    what = f"no CUDA graphs are captured: {why}"
    return Finding(code="AOTC-P014", what=what[:500], where=where)


def uncapturable(model: onnx.ModelProto, providers: Mapping[str, str]) -> dict[str, str]:
    """The nodes that prevent a capture, each with the reason."""
    shapes = frozenset(shape_nodes(model))
    found = {}
    for node in every_node(model):
        if has_subgraphs(node):
            found[node.name] = f"{node.op_type} is control flow"
        elif not node.domain and node.op_type in SIZED_BY_VALUES:
            found[node.name] = f"the size of {node.op_type} depends on values"
        elif node.name not in shapes and (provider := providers.get(node.name, "")) != _CAPTURING:
            found[node.name] = f"{node.op_type} is on {provider or 'no provider'}"
    return found


def _listed(obstacles: Mapping[str, str]) -> str:
    named = [f"{name} ({why})" for name, why in list(obstacles.items())[:_MAX_NAMED]]
    more = len(obstacles) - len(named)
    return ", ".join(named) + (f", and {more} more" if more else "")


# What a session of the variant needs: its memory, and the options with which it is created.


def memory_plan(model: onnx.ModelProto, claimed: ClaimedModel) -> MemoryPlan:
    """Bytes of the weights of `model`, and of inputs and activations at the maximum sizes."""
    specialized = claimed.optimized.specialized
    analyzed, domain = specialized.analyzed, specialized.sizes
    largest = domain.corner("max")
    inputs = 0
    for value in analyzed.source.inputs:
        elements = 1
        for size in shape_of(value, largest):
            elements *= size
        inputs += elements * _WIDTHS.get(value.dtype, 1)
    total = 0
    for tensor in tensors(model):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        total += int(entry.get("length", "0")) or len(tensor.raw_data) or tensor.ByteSize()
    return MemoryPlan(
        weights_bytes=total,
        input_bytes_max=inputs,
        activation_bytes_max=analyzed.activation_bytes if not specialized.plan.buckets else None,
    )


def divided_session(
    backends: Mapping[str, Backend],
    precisions: Mapping[str, Precision],
    payloads: Mapping[int, Payload],
    compiled: CompiledModel,
) -> SessionSpec:
    """The session of a variant whose nodes run on several providers, or are compiled.

    `backends` are those that run a node, by ORT name; `payloads` are as joined by their providers.
    """
    plan = compiled.claimed.plan
    ops = [op for _, op in compiled.claimed.optimized.nodes]
    use = SessionUse(cuda=plan.cuda, convolutional=is_convolutional(ops))
    config: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    for name, backend in backends.items():
        spec = backend.session("all", precisions[name], use)
        config |= spec.config
        for provider, stated in spec.provider_options.items():
            options[provider] = {**options.get(provider, {}), **stated}
    for index, payload in payloads.items():
        provider = compiled.division.assignment.parts[index].provider
        options.setdefault(provider, {}).update(payload.options)
    for name, backend in backends.items():
        if backend.compiles:
            options[name] = backend.options_excluding(
                options.get(name, {}), _operators_elsewhere(compiled, name)
            )
    if plan.threads is not None:
        for name, backend in backends.items():
            if name in options:
                options[name] = backend.with_threads(options[name], plan.threads)
    session = SessionSpec(
        optimization="all" if plan.optimization == "auto" else plan.optimization,
        config=config,
        provider_options={name: stated for name, stated in options.items() if stated},
    )
    return _with_plan(session, plan)


def _operators_elsewhere(compiled: CompiledModel, provider: str) -> set[str]:
    """Operators of the nodes on other providers, those in subgraphs included."""
    placed = compiled.division.assignment.providers
    nodes = every_node(compiled.division.graph.graph)
    return {node.op_type for node in nodes if placed[node.name] != provider}


def _with_plan(session: SessionSpec, plan: VariantPlan) -> SessionSpec:
    if plan.prepack == "off":
        session = replace(session, config={**session.config, _DISABLE_PREPACKING: "1"})
    return replace(session, threads=plan.threads)


# The fallback policy for variants that violate it: they are left out, or the build ends.


def is_budget(error: AotcError) -> bool:
    """Whether `error` is of where nodes run or what they cost, and not of what they compute."""
    return error.code in _PLACEMENT_CODES or error.code.startswith("AOTC-M")


def dropped_variant(error: AotcError, plan: VariantPlan, options: BuildOptions) -> DroppedVariant:
    """The record of leaving a variant out; raises `error` if the policy does not allow it.

    `alternate-variant` needs another of the profile's variants, `reject-route` a bucket.
    """
    policy = options.profile.fallback.policy
    others = any(variant.name != plan.spec for variant in options.profile.variants)
    rejects = policy == "reject-route" and bool(plan.buckets)
    if error.code not in _PLACEMENT_CODES or not (
        rejects or (policy == "alternate-variant" and others)
    ):
        raise error
    return DroppedVariant(
        name=plan.name,
        spec=plan.spec,
        buckets=plan.buckets,
        rejects=rejects,
        reason=error.line()[:500],
    )


def dropped_finding(dropped: DroppedVariant) -> Finding:
    """The finding AOTC-P009: which variant was left out, and what happens to its calls."""
    consequence = "calls of its sizes are refused" if dropped.rejects else "another variant serves"
    return Finding(
        code="AOTC-P009", what=f"{dropped.reason}; {consequence}", where=f"variant {dropped.name}"
    )


def no_variant_left(dropped: Sequence[DroppedVariant], refusals: Sequence[AotcError]) -> AotcError:
    """The refusal of a build whose variants the fallback policy left out, all of them."""
    if refusals:
        refusals[0].also = (*refusals[0].also, *refusals[1:])
        return refusals[0]
    return AotcError(
        "AOTC-P002",
        "every variant breaches the placement policy",
        found="; ".join(f"{variant.name}: {variant.reason}" for variant in dropped)[:2000],
    )
