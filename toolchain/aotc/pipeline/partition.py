"""Claim and partition: which execution provider would run which nodes, and which runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import record, replace, values_of
from aotc.graph import values
from aotc.graph.decisions import Decisions
from aotc.graph.partition.assignment import NodeCompute, Rules, Sizes, assign, sizes_at
from aotc.graph.partition.budgets import refusal_rows
from aotc.graph.partition.division import Extractor
from aotc.graph.types import fix_sizes
from aotc.graph.view import GraphView, every_node
from aotc.pipeline.context import BuildContext, BuildState, requested_backend
from aotc.pipeline.half import nodes_in_float32
from aotc.pipeline.integers import quantized_form, require_form
from aotc.pipeline.specialize import place_weights
from aotc.pipeline.types import (
    ClaimedModel,
    Division,
    LoweredModel,
    OptimizedModel,
    PartitionedModel,
    ReferenceRun,
    SpecializedModel,
    UndividedModel,
    VariantPlan,
)
from aotc.providers.base import Backend, ClaimRequest, Claims, Refusal
from aotc.providers.named_backends import backend_of, backends_of
from aotc.session.decisions import Judge
from aotc.session.inference import outputs_of, with_outputs, with_types
from aotc.session.parity import WITHOUT_SLICES, compare
from aotc.session.sessions import create_session
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.precision import Precision, Tolerance
from aotc.spec.profile import PluginSpec
from aotc.spec.providers import CPU, EP_CONTEXT
from aotc.spec.target import Target
from aotc.spec.variant import Certainty, RefusedNode, SessionSpec


def claim(
    variants: Sequence[OptimizedModel],
    wrong: Mapping[str, Sequence[WrongNodes]],
    state: BuildState,
) -> tuple[ClaimedModel, ...]:
    """Ask each variant's providers which nodes of its graph they would run.

    `wrong`, by variant, are nodes that a provider computed wrongly before: it does not get them.
    Raises AOTC-P007 (unknown provider), P004 (not available), N008 (precision), P010 (compute
    capability), and I013 to I015 if a provider crashes or hangs while it is asked.
    """
    weights, graphs = place_weights(variants, state)
    claims = (
        _claim(optimized, graph, weights, state)
        for optimized, graph in zip(variants, graphs, strict=True)
    )
    return tuple(
        without_wrong_nodes(claimed, wrong.get(claimed.plan.name, ())) for claimed in claims
    )


def _claim(
    optimized: OptimizedModel, graph: Path, weights: Path, state: BuildState
) -> ClaimedModel:
    plan = optimized.plan
    backends = backends_of(plan.providers, state.context.profile)
    _check_precision(optimized.specialized, backends, state.context)
    providers = tuple(backend.ort_name for backend in backends)
    if plan.cpu_only:
        return ClaimedModel(optimized=optimized, graph=graph, weights=weights, providers=providers)
    typed, sizes = _typed_graph(optimized, graph, weights, state)
    ops = dict(optimized.nodes)
    claims, refusals = [], []
    findings: list[Finding] = []
    predicted = False
    in_float32 = nodes_in_float32(optimized, typed, weights, backends, state)
    for backend in backends:
        found = _claims_of(backend, typed, weights, plan, state)
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
    specialized: SpecializedModel, backends: Sequence[Backend], context: BuildContext
) -> None:
    plan, target = specialized.plan, context.target
    if specialized.quantized:
        # Integers stand in the graph: all of its providers must run those.
        require_form(plan.precision, quantized_form(plan, context), backends)
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
    optimized: OptimizedModel, graph: Path, weights: Path, state: BuildState
) -> tuple[Path, tuple[Sizes, Sizes]]:
    specialized = optimized.specialized
    domain = specialized.sizes
    # A graph of one size is described once.
    corners: list[Literal["opt", "max"]] = ["opt"]
    if domain.corner("max") != domain.corner("opt"):
        corners.append("max")
    folder = state.work / f"describe-{specialized.plan.name}"
    value = state.workers.run(
        "aotc.pipeline.partition:describe_job",
        {
            "graph": str(graph),
            "weights": str(weights),
            "shapes": [dict(domain.corner(corner)) for corner in corners],
            "inputs": [_inputs(specialized, corner) for corner in corners],
        },
        folder=folder,
        where=f"variant {specialized.plan.name}",
    ).value
    found = [
        Sizes(
            nodes={name: NodeCompute(*cost) for name, cost in costs["nodes"].items()},
            values=costs["values"],
            shapes={name: tuple(shape) for name, shape in costs["shapes"].items()},
        )
        for costs in value
    ]
    return folder / "typed.onnx", (found[0], found[-1])


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
    backend: Backend,
    graph: Path,
    weights: Path,
    plan: VariantPlan,
    state: BuildState,
) -> Claims:
    state.announce(f"ask {backend.name}, variant {plan.name}")
    value = state.workers.run(
        "aotc.pipeline.partition:claim_job",
        {
            "backend": backend.name,
            "plugins": state.context.plugins(),
            "graph": str(graph),
            "weights": str(weights),
            "target": encode(state.context.target, full=True),
            "precision": backend.computes_in(plan.precision),
        },
        folder=state.work / f"claim-{plan.name}-{backend.name}",
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
    variants: Sequence[ClaimedModel], context: BuildContext
) -> tuple[PartitionedModel | UndividedModel, ...]:
    """Divide each variant's graph among its providers, if every node runs on one of them."""
    return tuple(_partition(claimed, context) for claimed in variants)


def _partition(claimed: ClaimedModel, context: BuildContext) -> PartitionedModel | UndividedModel:
    if claimed.plan.cpu_only:
        return PartitionedModel(claimed=claimed)
    graph = GraphView(onnx.load(claimed.graph, load_external_data=False).graph)
    try:
        division = divide(claimed, graph, {}, claimed.refusals, context)
    except AotcError as error:
        return UndividedModel(claimed=claimed, refusal=error)
    return PartitionedModel(claimed=claimed, division=division)


def divide(
    claimed: ClaimedModel,
    graph: GraphView,
    refused: Mapping[str, set[str]],
    refusals: Sequence[RefusedNode],
    context: BuildContext,
) -> Division:
    """Divide `graph` by its claims without `refused`, which are nodes by a provider's ORT name.

    `refusals` say why providers do not run nodes.  Raises AOTC-P001.
    """
    backends = backends_by_ort_name(claimed.plan, context)
    spec = context.profile.partitioning
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
        raise _unplaced_nodes(claimed, missing, refusals, context)
    return Division(graph=graph, assignment=assignment, refusals=tuple(refusals))


def backends_by_ort_name(plan: VariantPlan, context: BuildContext) -> dict[str, Backend]:
    """The variant's providers, in order; raises AOTC-P007 and P004."""
    return {backend.ort_name: backend for backend in backends_of(plan.providers, context.profile)}


def _unplaced_nodes(
    claimed: ClaimedModel,
    missing: Sequence[str],
    refusals: Sequence[RefusedNode],
    context: BuildContext,
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
        place=context.places.of("providers"),
    )


# Compiled parts of a variant, and their nodes, that compute other results than the CPU.
#
# The values at the boundaries of all parts are compared between the divided graph and the undivided
# graph on the CPU. A part is at fault if its inputs agree and its outputs do not. It is then
# compiled again with all its inner values as outputs, to find the nodes.


@record
class WrongNodes:
    """Nodes that a provider (by its ORT name) must not run, and what is wrong there.

    `error` says by how much, which differs between hosts.
    """

    provider: str
    nodes: frozenset[str]
    why: str
    error: str = ""

    def text(self) -> str:
        """The number of nodes, with the names of some."""
        some = ", ".join(sorted(self.nodes)[:3]) + (", ..." if len(self.nodes) > 3 else "")
        return f"{len(self.nodes)} node{'s' if len(self.nodes) > 1 else ''} ({some})"


def locate_wrong_nodes(
    lowered: LoweredModel,
    reference: ReferenceRun,
    tolerance: Tolerance,
    state: BuildState,
    *,
    differing: float = 0.0,
) -> tuple[WrongNodes, ...]:
    """Compare part by part with the inputs of `reference`; empty if no part is at fault.

    `differing` is the share of whole numbers that may differ where floats decide them.
    """
    plan = lowered.plan
    assert lowered.report is not None
    compiled = {part.name: part.provider for part in lowered.report.partitions if part.compiled}
    names = {
        backend_of(name, state.context.profile.plugins).ort_name: name for name in plan.providers
    }
    value = state.workers.run(
        "aotc.pipeline.partition:locate_job",
        {
            "model": str(lowered.model),
            "weights": str(lowered.weights),
            "session": encode(lowered.session),
            "providers": list(lowered.providers),
            "graph": str(lowered.partitioned.claimed.graph),
            "graph_weights": str(lowered.partitioned.claimed.weights),
            "parts": {part: names[provider] for part, provider in compiled.items()},
            "plugins": state.context.plugins(),
            "precision": plan.precision,
            "tolerance": encode(tolerance),
            "differing": differing,
            "inputs": reference.input_paths,
        },
        folder=state.work / f"locate-{plan.name}",
        where=f"variant {plan.name}",
    ).value
    return tuple(
        WrongNodes(
            provider=compiled[part["name"]],
            nodes=frozenset(part["nodes"]),
            why=f"value {part['value']}",
            error=part["error"],
        )
        for part in value
    )


def all_compiled_nodes(lowered: LoweredModel, why: str) -> tuple[WrongNodes, ...]:
    """All nodes that a provider compiled."""
    assert lowered.report is not None
    providers = {part.provider for part in lowered.report.partitions if part.compiled}
    return tuple(
        WrongNodes(provider=name, nodes=nodes, why=why)
        for name, nodes in lowered.partitioned.claimed.claims
        if name in providers
    )


def without_wrong_nodes(claimed: ClaimedModel, wrong: Sequence[WrongNodes]) -> ClaimedModel:
    """The claims without wrong nodes, which become refusals, and AOTC-P013 for them."""
    ops = dict(claimed.optimized.nodes)
    refused: dict[str, set[str]] = {}
    refusals, findings = list(claimed.refusals), list(claimed.findings)
    where = f"variant {claimed.plan.name}"
    for wrong_nodes in wrong:
        refused.setdefault(wrong_nodes.provider, set()).update(wrong_nodes.nodes)
        refusals += [
            RefusedNode(
                node=name,
                op=ops.get(name, ""),
                provider=wrong_nodes.provider,
                reason=f"computes other results than the CPU: {wrong_nodes.why}"[:300],
            )
            for name in sorted(wrong_nodes.nodes)
        ]
        findings.append(
            Finding(
                code="AOTC-P013",
                what=f"{wrong_nodes.provider} computes other results than the CPU "
                f"({wrong_nodes.why}); left to the next provider: {wrong_nodes.text()}"[:1000],
                where=where,
            )
        )
    return replace(
        claimed,
        claims=tuple((name, nodes - refused.get(name, set())) for name, nodes in claimed.claims),
        refusals=tuple(refusals),
        findings=tuple(findings),
    )


def locate_job(request: Json) -> Json:
    """In the worker: the parts at fault, each with its wrong nodes or all of them."""
    undivided = onnx.load(request["graph"], load_external_data=False)
    divided = onnx.load(request["model"], load_external_data=False)
    graph = GraphView(undivided.graph)
    tolerance = decode(Tolerance, request["tolerance"])
    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    contexts = [node for node in divided.graph.node if node.op_type == EP_CONTEXT]
    shown = [name for node in contexts for name in (*node.input, *node.output) if name]
    known = Extractor(undivided, graph).value_types
    expected = _values(
        with_outputs(undivided, shown, known),
        inputs,
        SessionSpec(optimization="disable"),
        [CPU],
        Path(request["graph_weights"]),
    )
    place = Path(request["model"]).with_name("shown.onnx")
    place.write_bytes(with_outputs(divided, shown, known).SerializeToString())
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    libraries = {spec.provider: Path(spec.library) for spec in plugins.values()}
    session = create_session(
        place,
        decode(SessionSpec, request["session"]),
        providers=request["providers"],
        weights_folder=Path(request["weights"]),
        context_path=place,
        libraries=libraries,
    )
    found = outputs_of(session, inputs)

    judges = {
        name: Judge(replace(stated, max_differing=request["differing"]))
        for name, stated in Decisions(undivided, graph.producers).stated.items()
    }

    def differs(name: str) -> str:
        if name not in expected or name not in found:
            return ""
        error = compare(
            expected[name], found[name], tolerance, name, None, WITHOUT_SLICES, judges.get(name)
        )
        return "" if error.passed else error.reason

    blamed = []
    for node in contexts:
        wrong = [(name, text) for name in node.output if (text := differs(name))]
        if not wrong or any(differs(name) for name in node.input):
            continue
        part, _ = graph.behind(node.output, set(node.input))
        backend = backend_of(request["parts"][node.name], plugins)
        precision: Precision = backend.computes_in(request["precision"])
        given = {**inputs, **expected}
        try:
            nodes = _wrong_nodes_in(
                undivided,
                graph,
                part,
                {name: given[name] for name in node.input if name in given},
                (backend.session("disable", precision), [backend.ort_name, CPU], libraries),
                tolerance,
                Path(request["graph_weights"]),
                judges,
            )
        except (AotcError, ValueError):
            # With all of its values as outputs, the provider may refuse the part.
            nodes = []
        names = {index: graph.nodes[index] for index in nodes or part}
        blamed.append(
            {
                "name": node.name,
                "nodes": [
                    n
                    for node_in_part in names.values()
                    for n in (node_in_part.name, *graph.inside.get(node_in_part.name, ()))
                ],
                "value": wrong[0][0],
                "error": wrong[0][1],
            }
        )
    return blamed


def _wrong_nodes_in(
    model: onnx.ModelProto,
    graph: GraphView,
    part: Sequence[int],
    inputs: Mapping[str, Any],
    provider: tuple[SessionSpec, list[str], Mapping[str, Path]],
    tolerance: Tolerance,
    weights: Path,
    judges: Mapping[str, Judge],
) -> list[int]:
    """Those nodes of a part whose inputs agree with the CPU's, and whose outputs do not."""
    extractor = Extractor(model, graph)
    part_model = extractor.extract(part, "part")
    made = [name for index in part for name in graph.makes[index]]
    part_model = with_outputs(part_model, made, extractor.value_types)
    spec, names, libraries = provider
    expected = _values(part_model, inputs, SessionSpec(optimization="disable"), [CPU], weights)
    found = _values(part_model, inputs, spec, names, weights, libraries)
    wrong = {
        name
        for name in expected
        if name in found
        and not compare(
            expected[name], found[name], tolerance, name, None, WITHOUT_SLICES, judges.get(name)
        ).passed
    }
    return [
        index
        for index in part
        if wrong.intersection(graph.makes[index]) and not wrong.intersection(graph.reads[index])
    ]


def _values(
    model: onnx.ModelProto,
    inputs: Mapping[str, Any],
    spec: SessionSpec,
    providers: Sequence[str],
    weights: Path,
    libraries: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """All outputs of one run, by name."""
    session = create_session(
        model.SerializeToString(),
        spec,
        providers=providers,
        weights_folder=weights,
        libraries=libraries,
        compiles=True,
    )
    return outputs_of(session, inputs)
