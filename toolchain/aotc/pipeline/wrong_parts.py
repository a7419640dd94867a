"""Finding compiled parts of a variant, and their nodes, that compute other results than the CPU.

The values at the boundaries of all parts are compared between the divided graph and the undivided
graph on the CPU.  A part is at fault if its inputs agree and its outputs do not.  It is then
compiled again with all its inner values as outputs, to find the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.graph.partition.extraction import Extractor
from aotc.graph.view import GraphView
from aotc.pipeline.options import BuildOptions
from aotc.pipeline.types import ClaimedModel, LoweredModel, ReferenceRun
from aotc.providers.named_backends import backend_of
from aotc.session.inference import outputs_of, with_outputs
from aotc.session.parity import compare
from aotc.session.sessions import create_session
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.precision import Precision, Tolerance
from aotc.spec.profile import PluginSpec
from aotc.spec.providers import CPU, EP_CONTEXT
from aotc.spec.variant import RefusedNode, SessionSpec


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
    lowered: LoweredModel, reference: ReferenceRun, tolerance: Tolerance, options: BuildOptions
) -> tuple[WrongNodes, ...]:
    """Compare part by part with the inputs of `reference`; empty if no part is at fault."""
    plan = lowered.plan
    assert lowered.report is not None
    compiled = {part.name: part.provider for part in lowered.report.partitions if part.compiled}
    names = {backend_of(name, options.profile.plugins).ort_name: name for name in plan.providers}
    value = options.workers.run(
        "aotc.pipeline.wrong_parts:locate_job",
        {
            "model": str(lowered.model),
            "weights": str(lowered.weights),
            "session": encode(lowered.session),
            "providers": list(lowered.providers),
            "graph": str(lowered.partitioned.claimed.graph),
            "graph_weights": str(lowered.partitioned.claimed.weights),
            "parts": {part: names[provider] for part, provider in compiled.items()},
            "plugins": options.plugins(),
            "precision": plan.precision,
            "tolerance": encode(tolerance),
            "inputs": reference.input_paths,
        },
        folder=options.work / f"locate-{plan.name}",
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

    def differs(name: str) -> str:
        if name not in expected or name not in found:
            return ""
        error = compare(expected[name], found[name], tolerance, name)
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
        if name in found and not compare(expected[name], found[name], tolerance, name).passed
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
