"""Lower: from claims to files that a session runs: compiled parts, and the graph around them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import onnx

from aotc.backends.base import Backend, Payload, Precision
from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.partitions import PartitionReport, RefusedNode
from aotc.contract.manifest.variant import DroppedVariant, MemoryPlan, NodePlacement, SessionSpec
from aotc.engine.named_backends import backends_of
from aotc.engine.session import WEIGHTS_SIGN
from aotc.errors import AotcError
from aotc.graphs import weights
from aotc.graphs.capture import tensors
from aotc.graphs.compaction import compact
from aotc.partitioning import partition_report as reports
from aotc.partitioning.compute import Sizes
from aotc.partitioning.extraction import hybrid
from aotc.passes.base import walk_nodes
from aotc.probing.inputs.fixtures import shape_of
from aotc.stages.build_options import BuildOptions
from aotc.stages.fallback import drop
from aotc.stages.levels import load_level
from aotc.stages.lowering.compiling import Compiled, compile_all
from aotc.stages.lowering.placing import SHARED
from aotc.stages.types import LoweredModel, PartitionedModel, VariantPlan

_NO_PREPACKING = "session.disable_prepacking"


def lower(
    partitions: Sequence[PartitionedModel], options: BuildOptions
) -> tuple[tuple[LoweredModel, ...], tuple[DroppedVariant, ...]]:
    """Compile what is to be compiled, and write each variant's final graph.

    Constants that only compiled parts read, which hold them, are dropped from the weights.
    The second are variants that the fallback policy leaves out.  Raises what `compile_all` does.
    """
    lowered: list[LoweredModel] = []
    dropped: list[DroppedVariant] = []
    for item in partitions:
        if item.sizes is None:
            lowered.append(_plain(item, options))
            continue
        try:
            compiled = compile_all(item, _by_ort_name(item, options), options)
        except AotcError as error:
            dropped.append(drop(error, item.optimized.specialized.plan, options))
            continue
        lowered.append(_lowered(item, compiled, options))
    if any(item.contexts for item in lowered):
        lowered = _without_unread(lowered, partitions[0].weights, options)
    return tuple(lowered), tuple(dropped)


def _without_unread(
    lowered: Sequence[LoweredModel], weights_folder: Path, options: BuildOptions
) -> list[LoweredModel]:
    """The variants with a folder of weights that only holds what they read."""
    kept = options.work / "weights-kept"
    shared = [item for item in lowered if SHARED in item.files and _by_offsets(item)]
    whole = {SHARED} if shared else set()
    compact([item.model for item in lowered], weights_folder, kept, whole=whole)
    result = []
    for item in lowered:
        files = {*_files(item.model), *(whole if _by_offsets(item) else ())}
        result.append(replace(item, files=tuple(sorted(files)), weights=kept))
    return result


def _by_offsets(item: LoweredModel) -> bool:
    """Whether compiled parts read the shared weights themselves."""
    options = item.session.provider_options.values()
    return any(WEIGHTS_SIGN in text for stated in options for text in stated.values())


def _by_ort_name(item: PartitionedModel, options: BuildOptions) -> dict[str, Backend]:
    plan = item.optimized.specialized.plan
    return {each.ort_name: each for each in backends_of(plan.providers, options.profile)}


def _files(model: Path) -> tuple[str, ...]:
    return weights.locations(onnx.load(model, load_external_data=False))


def _plain(item: PartitionedModel, options: BuildOptions) -> LoweredModel:
    """One provider takes all, and compiles nothing."""
    (backend,) = _by_ort_name(item, options).values()
    plan = item.optimized.specialized.plan
    model = onnx.load(item.graph, load_external_data=False)
    path = item.graph.with_name("lowered.onnx")
    shutil.copyfile(item.graph, path)
    session = _with_plan(backend.session(load_level(plan)), plan)
    return LoweredModel(
        partitioned=item,
        model=path,
        weights=item.weights,
        files=weights.locations(model),
        session=session,
        memory=_memory(model, item),
        providers=item.providers,
    )


def _with_plan(session: SessionSpec, plan: VariantPlan) -> SessionSpec:
    if plan.prepack == "off":
        session = replace(session, config={**session.config, _NO_PREPACKING: "1"})
    return replace(session, threads=plan.threads)


def _lowered(item: PartitionedModel, compiled: Compiled, options: BuildOptions) -> LoweredModel:
    plan = item.optimized.specialized.plan
    backends = _by_ort_name(item, options)
    folder = options.work / f"lower-{plan.name}"
    folder.mkdir()
    payloads = _joined(compiled, backends, folder)
    compatibility = _compatibility(compiled, payloads)
    contexts: dict[int, tuple[str, Mapping[str, str | int]]] = {
        index: (compiled.names[index], payload.attributes) for index, payload in payloads.items()
    }
    parts = compiled.assignment.parts
    model = hybrid(compiled.model, compiled.graph, parts, contexts, compatibility)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    precisions: dict[str, Precision] = {
        name: plan.precision if plan.precision in each.precisions else "keep"
        for name, each in backends.items()
    }
    used = {part.provider for part in parts} | set(compiled.assignment.providers.values())
    needs = tuple(
        each.needs(options.target, precisions[name])
        for name, each in backends.items()
        if name in used
    )
    devices = {name: each.device for name, each in backends.items()}
    files = set(weights.locations(model))
    if any(payload.options for payload in payloads.values()):
        files.update(file.name for file in item.weights.iterdir() if file.name == SHARED)
    return LoweredModel(
        partitioned=item,
        model=path,
        weights=item.weights,
        files=tuple(sorted(files)),
        session=_session(
            {name: each for name, each in backends.items() if name in used},
            precisions,
            payloads,
            compiled,
            plan,
        ),
        memory=_memory(compiled.model, item),
        contexts=tuple(sorted({folder / name for p in payloads.values() for name in p.files})),
        compatibility=compatibility,
        needs=needs,
        providers=tuple(name for name in backends if name in used),
        device="gpu" if "gpu" in {devices[name] for name in used} else "cpu",
        report=_report(item, compiled, payloads, devices),
        placed=_placed(model, compiled, item.sizes[0]) if item.sizes else (),
        why_not_run="; ".join(
            f"{each.name}: {why}"
            for name, each in backends.items()
            if name in used and (why := each.probe().why_not)
        ),
        findings=tuple(compiled.findings),
    )


def _joined(
    compiled: Compiled, backends: Mapping[str, Backend], folder: Path
) -> dict[int, Payload]:
    """Payloads with their files in `folder`, those of one provider joined by it."""
    result: dict[int, Payload] = {}
    for name, backend in backends.items():
        indices = [i for i in compiled.payloads if compiled.assignment.parts[i].provider == name]
        for index in indices:
            for file in compiled.payloads[index].files:
                shutil.copyfile(compiled.folders[index] / file, folder / file)
        joined = backend.join([compiled.payloads[i] for i in indices], folder, backend.name)
        result |= dict(zip(indices, joined, strict=True))
    return result


def _compatibility(compiled: Compiled, payloads: Mapping[int, Payload]) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, payload in payloads.items():
        if payload.compatibility:
            provider = compiled.assignment.parts[index].provider
            if found.setdefault(provider, payload.compatibility) != payload.compatibility:
                raise RuntimeError(f"{provider} gives two compatibility strings in one build")
    return found


def _session(
    backends: Mapping[str, Backend],
    precisions: Mapping[str, Precision],
    payloads: Mapping[int, Payload],
    compiled: Compiled,
    plan: VariantPlan,
) -> SessionSpec:
    config: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    for name, backend in backends.items():
        spec = backend.session("all", precisions[name])
        config |= spec.config
        for provider, stated in spec.provider_options.items():
            options[provider] = {**options.get(provider, {}), **stated}
    for index, payload in payloads.items():
        provider = compiled.assignment.parts[index].provider
        options.setdefault(provider, {}).update(payload.options)
    for name, backend in backends.items():
        if backend.compiles:
            options[name] = backend.beside(options.get(name, {}), _left(compiled, name))
    if plan.threads is not None:
        for name, backend in backends.items():
            if name in options:
                options[name] = backend.threaded(options[name], plan.threads)
    session = SessionSpec(
        optimization="all" if plan.optimization == "auto" else plan.optimization,
        config=config,
        provider_options={name: stated for name, stated in options.items() if stated},
    )
    return _with_plan(session, plan)


def _left(compiled: Compiled, provider: str) -> set[str]:
    """Operators of the nodes that other providers run, those of bodies included."""
    ops = {each.name: each.op for each in compiled.graph.nodes}
    ops |= {each.name: each.op for each in compiled.graph.body_nodes}
    placed = compiled.assignment.providers
    return {op.rpartition("::")[2] for name, op in ops.items() if placed[name] != provider}


def _report(
    item: PartitionedModel,
    compiled: Compiled,
    payloads: Mapping[int, Payload],
    devices: Mapping[str, str],
) -> PartitionReport:
    assert item.sizes is not None
    placed = compiled.assignment
    given = [each for each in compiled.refusals if placed.providers.get(each.node) != each.provider]
    given += _given_away(item, compiled)
    return reports.report(
        compiled.graph,
        placed,
        item.sizes,
        names=compiled.names,
        compiled={index: payload.files[0] for index, payload in payloads.items()},
        devices=devices,
        refusals=given,
        how=item.how,
    )


def _given_away(item: PartitionedModel, compiled: Compiled) -> list[RefusedNode]:
    """Nodes that a provider would run, and that the rules of partitioning gave to another."""
    ops = dict(item.optimized.nodes)
    found = []
    for node, why in compiled.assignment.given_away.items():
        claimant = next(name for name, nodes in item.claims if node in nodes)
        if claimant != compiled.assignment.providers[node]:
            found.append(
                RefusedNode(node=node, op=ops.get(node, ""), provider=claimant, reason=why)
            )
    return found


def _placed(model: onnx.ModelProto, compiled: Compiled, sizes: Sizes) -> tuple[NodePlacement, ...]:
    """Where each node of the final graph is to run."""
    named = dict(compiled.assignment.providers)
    flops = {name: cost.flops for name, cost in sizes.nodes.items()}
    for index, name in enumerate(compiled.names):
        part = compiled.assignment.parts[index]
        named.setdefault(name, part.provider)
        nodes = [compiled.graph.nodes[each] for each in part.nodes]
        inside = [each for node in nodes for each in (node.name, *node.bodies)]
        flops[name] = sum(flops.get(each, 0) for each in inside)
    return tuple(
        NodePlacement(
            name=node.name,
            op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
            provider=named[node.name],
            flops=flops.get(node.name, 0),
        )
        for node in walk_nodes(model)
        if node.name in named
    )


def _memory(model: onnx.ModelProto, partitioned: PartitionedModel) -> MemoryPlan:
    specialized = partitioned.optimized.specialized
    analyzed, domain = specialized.analyzed, specialized.domain or specialized.analyzed.domain
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


_WIDTHS: Final[Mapping[str, Json]] = {
    "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "complex64": 8, "complex128": 16,
}  # fmt: skip
