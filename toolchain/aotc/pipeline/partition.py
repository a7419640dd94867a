"""Claim and partition: which execution provider would run which nodes, and which runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import replace, values_of
from aotc.graph import values
from aotc.graph.partition.assignment import NodeCompute, Rules, Sizes, assign, sizes_at
from aotc.graph.partition.budgets import refusal_rows
from aotc.graph.types import fix_sizes
from aotc.graph.view import GraphView, every_node
from aotc.pipeline.half import nodes_in_float32
from aotc.pipeline.integers import quantized_form, require_form
from aotc.pipeline.options import BuildOptions, requested_backend
from aotc.pipeline.specialize import place_weights
from aotc.pipeline.types import (
    ClaimedModel,
    Division,
    OptimizedModel,
    PartitionedModel,
    SpecializedModel,
    UndividedModel,
    VariantPlan,
)
from aotc.pipeline.wrong_parts import WrongNodes, without_wrong_nodes
from aotc.providers.base import Backend, ClaimRequest, Claims, Refusal
from aotc.providers.named_backends import backends_of
from aotc.session.inference import with_types
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.providers import CPU
from aotc.spec.target import Target
from aotc.spec.variant import Certainty, RefusedNode


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
    _check_precision(optimized.specialized, backends, options)
    providers = tuple(backend.ort_name for backend in backends)
    if plan.cpu_only:
        return ClaimedModel(optimized=optimized, graph=graph, weights=weights, providers=providers)
    typed, sizes = _typed_graph(optimized, graph, weights, options)
    ops = dict(optimized.nodes)
    claims, refusals = [], []
    findings: list[Finding] = []
    predicted = False
    in_float32 = nodes_in_float32(optimized, typed, weights, backends, options)
    for backend in backends:
        found = _claims_of(backend, typed, weights, plan, options)
        kept, noticed = in_float32.get(backend.ort_name, ({}, ()))
        findings += noticed
        left = sorted(found.nodes & kept.keys())
        found = replace(
            found,
            nodes=found.nodes - kept.keys(),
            refusals=(*found.refusals, *(Refusal(node=n, reason=kept[n]) for n in left)),
        )
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


def _check_precision(
    specialized: SpecializedModel, backends: Sequence[Backend], options: BuildOptions
) -> None:
    plan, target = specialized.plan, options.target
    if specialized.quantized:
        # Integers stand in the graph: all of its providers must run those.
        require_form(plan.precision, quantized_form(plan, options), backends)
        return
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
    supported = {name for backend in choosing for name in backend.abilities()}
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
        "aotc.pipeline.partition:describe_job",
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
            return reference.input_paths
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
        "aotc.pipeline.partition:claim_job",
        {
            "backend": backend.name,
            "plugins": options.plugins(),
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
    backend = requested_backend(request)
    found = backend.claim(
        ClaimRequest(
            model=Path(request["graph"]),
            weights=Path(request["weights"]),
            target=decode(Target, request["target"]),
            precision=request["precision"],
        )
    )
    model = onnx.load(request["graph"], load_external_data=False)
    names = {node.name for node in every_node(model)}
    answered = found.nodes | {refusal.node for refusal in found.refusals}
    if names - answered:
        raise RuntimeError(f"{backend.name} does not report on {sorted(names - answered)[:3]}")
    return {
        "nodes": sorted(found.nodes & names),
        "refusals": [values_of(refusal) for refusal in found.refusals],
        "how": found.how,
        "notes": list(found.notes),
        "failed": found.failed,
    }


def partition(
    variants: Sequence[ClaimedModel], options: BuildOptions
) -> tuple[PartitionedModel | UndividedModel, ...]:
    """Divide each variant's graph among its providers, if every node runs on one of them."""
    return tuple(_partition(claimed, options) for claimed in variants)


def _partition(claimed: ClaimedModel, options: BuildOptions) -> PartitionedModel | UndividedModel:
    if claimed.plan.cpu_only:
        return PartitionedModel(claimed=claimed)
    graph = GraphView(onnx.load(claimed.graph, load_external_data=False).graph)
    try:
        division = divide(claimed, graph, {}, claimed.refusals, options)
    except AotcError as error:
        return UndividedModel(claimed=claimed, refusal=error)
    return PartitionedModel(claimed=claimed, division=division)


def divide(
    claimed: ClaimedModel,
    graph: GraphView,
    refused: Mapping[str, set[str]],
    refusals: Sequence[RefusedNode],
    options: BuildOptions,
) -> Division:
    """Divide `graph` by its claims without `refused`, which are nodes by a provider's ORT name.

    `refusals` say why providers do not run nodes.  Raises AOTC-P001.
    """
    backends = backends_by_ort_name(claimed.plan, options)
    spec = options.profile.partitioning
    rules = Rules(
        min_nodes=spec.min_nodes,
        not_in_subgraphs=frozenset(name for name, backend in backends.items() if backend.compiles),
        rates={name: backend.rates for name, backend in backends.items()}
        if spec.weigh_boundaries
        else None,
        sizes=claimed.sizes[0] if claimed.sizes else None,
    )
    claims = [(name, nodes - refused.get(name, set())) for name, nodes in claimed.claims]
    assignment, missing = assign(graph, claims, rules)
    if missing:
        raise _unplaced_nodes(claimed, missing, refusals, options)
    return Division(graph=graph, assignment=assignment, refusals=tuple(refusals))


def backends_by_ort_name(plan: VariantPlan, options: BuildOptions) -> dict[str, Backend]:
    """The variant's providers, in order; raises AOTC-P007 and P004."""
    return {backend.ort_name: backend for backend in backends_of(plan.providers, options.profile)}


def _unplaced_nodes(
    claimed: ClaimedModel,
    missing: Sequence[str],
    refusals: Sequence[RefusedNode],
    options: BuildOptions,
) -> AotcError:
    plan = claimed.plan
    ops = dict(claimed.optimized.nodes)
    relevant = [refusal for refusal in refusals if refusal.node in set(missing)]
    first = missing[0]
    why = [f"{refusal.provider}: {refusal.reason}" for refusal in relevant if refusal.node == first]
    more = f", and {len(missing) - 1} nodes more" if len(missing) > 1 else ""
    return AotcError(
        "AOTC-P001",
        f"node {first} ({ops.get(first, '')}){more} runs on none of the variant's providers",
        where=f"variant {plan.name}",
        expected=", ".join(plan.providers),
        found="; ".join(why),
        fix="Add cpu to the profile's providers, or change the model.",
        rows=refusal_rows(relevant),
        place=options.places.of("providers"),
    )
