"""Claim: which execution providers would run which nodes, as they say themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import onnx

from aotc.backends.base import Backend, ClaimRequest, Claims, Refusal
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.divided_graph import Certainty, RefusedNode
from aotc.contract.profile import PluginSpec
from aotc.contract.target import Target
from aotc.engine import values
from aotc.engine.named_backends import backend_of, backends_of
from aotc.errors import AotcError
from aotc.graphs.value_types import with_types
from aotc.partitioning.compute import NodeCompute, Sizes, sizes_at
from aotc.partitioning.scopes import fix_sizes
from aotc.passes.base import walk_nodes
from aotc.records import values_of
from aotc.stages.build_options import BuildOptions
from aotc.stages.retrying.wrong_parts import WrongNodes, without_wrong_nodes
from aotc.stages.types import (
    ClaimedModel,
    OptimizedModel,
    SpecializedModel,
)
from aotc.stages.variant_plan import VariantPlan
from aotc.stages.weight_files import place_weights


def claim(
    variants: Sequence[OptimizedModel],
    wrong: Mapping[str, Sequence[WrongNodes]],
    options: BuildOptions,
) -> tuple[ClaimedModel, ...]:
    """Ask each variant's providers which nodes of its graph they would run.

    `wrong`, by variant, are nodes that a provider computed wrongly before: it does not get them.
    Raises AOTC-P007 (unknown provider), P004 (not available), N008 (precision), P010 (compute
    capability), and I013 to I015 if a provider crashes or hangs while it is asked.
    """
    weights, graphs = place_weights(variants, options)
    claims = (
        _claim(optimized, graph, weights, options)
        for optimized, graph in zip(variants, graphs, strict=True)
    )
    return tuple(
        without_wrong_nodes(claimed, wrong.get(claimed.plan.name, ())) for claimed in claims
    )


def _claim(
    optimized: OptimizedModel, graph: Path, weights: Path, options: BuildOptions
) -> ClaimedModel:
    plan = optimized.plan
    backends = backends_of(plan.providers, options.profile)
    if not optimized.specialized.quantized:
        # Integers stand in the graph, for any provider.
        _check_precision(plan, backends, options.target)
    providers = tuple(backend.ort_name for backend in backends)
    if plan.cpu_only:
        return ClaimedModel(optimized=optimized, graph=graph, weights=weights, providers=providers)
    typed, sizes = _typed_graph(optimized, graph, weights, options)
    ops = dict(optimized.nodes)
    claims, refusals, findings = [], [], []
    predicted = False
    for backend in backends:
        found = _claims_of(backend, typed, weights, plan, options)
        claims.append((backend.ort_name, found.nodes))
        refusals += [
            RefusedNode(
                node=refusal.node,
                op=ops.get(refusal.node, ""),
                provider=backend.ort_name,
                reason=refusal.reason,
            )
            for refusal in found.refusals
        ]
        where = f"variant {plan.name}"
        findings += [Finding(code="AOTC-P012", what=note, where=where) for note in found.notes]
        if found.failed:
            findings.append(Finding(code="AOTC-P006", what=found.failed, where=where))
        predicted = predicted or found.how == "predicted"
    how: Certainty = "predicted" if predicted else "observed"
    return ClaimedModel(
        optimized=optimized,
        graph=typed,
        weights=weights,
        providers=providers,
        claims=tuple(claims),
        refusals=tuple(refusals),
        how=how,
        sizes=sizes,
        findings=tuple(findings),
    )


def _check_precision(plan: VariantPlan, backends: Sequence[Backend], target: Target) -> None:
    # Beside others, ONNX Runtime's CPU would store in half precision what they do not compute so.
    choosing = backends if plan.cpu_only else [one for one in backends if one.ort_name != CPU]
    capable = [backend for backend in choosing if plan.precision in backend.precisions]
    for backend in capable:
        # Without them a provider silently computes in another precision.
        required = backend.needs(target, plan.precision).isa
        missing = sorted(set(required) - set(target.isa or ()))
        if missing:
            raise AotcError(
                "AOTC-N008",
                f"{backend.name} cannot compute in {plan.precision} on this target's CPU",
                where="precision",
                expected=", ".join(missing),
                found=", ".join(target.isa or ()),
                fix="Build for a target that has them, or choose precision: keep.",
            )
    if capable:
        return
    supported = {name for backend in choosing for name in backend.precisions}
    raise AotcError(
        "AOTC-N008",
        f"no provider of variant {plan.name} computes in {plan.precision}",
        where="precision",
        expected=", ".join(sorted(supported)),
        found=plan.precision,
    )


def _typed_graph(
    optimized: OptimizedModel, graph: Path, weights: Path, options: BuildOptions
) -> tuple[Path, tuple[Sizes, Sizes]]:
    specialized = optimized.specialized
    domain = specialized.sizes
    folder = options.work / f"describe-{specialized.plan.name}"
    value = options.workers.run(
        "aotc.stages.claim:describe_job",
        {
            "graph": str(graph),
            "weights": str(weights),
            "shapes": [dict(domain.corner("opt")), dict(domain.corner("max"))],
            "inputs": [_inputs(specialized, corner) for corner in ("opt", "max")],
        },
        folder=folder,
        where=f"variant {specialized.plan.name}",
    ).value
    opt, largest = (
        Sizes(
            nodes={name: NodeCompute(*cost) for name, cost in costs["nodes"].items()},
            values=costs["values"],
            shapes={name: tuple(shape) for name, shape in costs["shapes"].items()},
        )
        for costs in value
    )
    return folder / "typed.onnx", (opt, largest)


def _inputs(specialized: SpecializedModel, corner: Literal["opt", "max"]) -> dict[str, str]:
    """Files of inputs with the sizes of a corner; none if the reference was not run there."""
    domain = specialized.sizes
    sizes = domain.corner(corner)
    for reference in specialized.analyzed.references:
        if all(reference.sizes.get(name) == size for name, size in sizes.items()):
            return {name: str(path) for name, path in reference.inputs.items()}
    return {}


def describe_job(request: Json) -> Json:
    """In the worker: write the graph with the types of all values, and compute sizes."""
    model = onnx.load(request["graph"], load_external_data=False)
    weights = Path(request["weights"])
    inputs = [
        {name: values.load(Path(path)) for name, path in files.items()} or None
        for files in request["inputs"]
    ]
    typed = with_types(model, weights, inputs[0])
    Path("typed.onnx").write_bytes(typed.SerializeToString(deterministic=True))
    result = []
    for dims, given in zip(request["shapes"], inputs, strict=True):
        sizes = sizes_at(typed, dims)
        # A run of the main graph shows nothing of the values in subgraphs.
        if any(not sizes.nodes[node.name].known for node in typed.graph.node):
            fixed = onnx.ModelProto()
            fixed.CopyFrom(model)
            fix_sizes(fixed.graph, dims)
            sizes = sizes_at(with_types(fixed, weights, given, sizes=True), dims, stated=True)
        result.append(
            {
                "nodes": {k: [v.flops, v.bytes, v.known] for k, v in sizes.nodes.items()},
                "values": dict(sizes.values),
                "shapes": {name: list(shape) for name, shape in sizes.shapes.items()},
            }
        )
    return result


def _claims_of(
    backend: Backend, graph: Path, weights: Path, plan: VariantPlan, options: BuildOptions
) -> Claims:
    options.announce(f"ask {backend.name}, variant {plan.name}")
    value = options.workers.run(
        "aotc.stages.claim:claim_job",
        {
            "backend": backend.name,
            "plugins": encode(dict(options.profile.plugins)),
            "graph": str(graph),
            "weights": str(weights),
            "target": encode(options.target, full=True),
            "precision": backend.computes_in(plan.precision),
        },
        folder=options.work / f"claim-{plan.name}-{backend.name}",
        where=f"variant {plan.name}, provider {backend.name}",
    ).value
    return Claims(
        nodes=frozenset(value["nodes"]),
        refusals=tuple(Refusal(**refusal) for refusal in value["refusals"]),
        how=value["how"],
        notes=tuple(value["notes"]),
        failed=value["failed"],
    )


def claim_job(request: Json) -> Json:
    """In the worker: ask one provider for its claims."""
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    backend = backend_of(request["backend"], plugins)
    found = backend.claim(
        ClaimRequest(
            model=Path(request["graph"]),
            weights=Path(request["weights"]),
            target=decode(Target, request["target"]),
            precision=request["precision"],
        )
    )
    model = onnx.load(request["graph"], load_external_data=False)
    names = {node.name for node in walk_nodes(model)}
    answered = found.nodes | {refusal.node for refusal in found.refusals}
    if names - answered:
        raise RuntimeError(f"{backend.name} says nothing of {sorted(names - answered)[:3]}")
    return {
        "nodes": sorted(found.nodes & names),
        "refusals": [values_of(refusal) for refusal in found.refusals],
        "how": found.how,
        "notes": list(found.notes),
        "failed": found.failed,
    }
