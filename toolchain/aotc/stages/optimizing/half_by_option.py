"""Nodes that stay in float32 where a provider computes in half precision by an option of its own.

Such a provider computes all that it gets in that type, and what is larger than the type's largest
number is wrong there without a word (OpenVINO gives the largest).  It cannot be told of single
nodes, so that those go to the next provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from aotc.backends.base import Backend
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.graphs.value_types import with_types
from aotc.passes.base import walk_nodes
from aotc.passes.half_precision.half_types import HALF_TYPES
from aotc.passes.half_precision.masks import lower_masks
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.optimizing.half_choice import ACTIVATIONS, READERS
from aotc.stages.optimizing.half_precision import chooser_for, nodes_of_profile, request_of
from aotc.stages.optimizing.half_ranges import beyond, largest_values, overflow_findings
from aotc.stages.optimizing.half_weights import PROFILE
from aotc.stages.types import OptimizedModel

_WORDS = {
    PROFILE: "the profile keeps it in float32",
    ACTIVATIONS: "it makes values out of the type's range",
    READERS: "it reads values out of the type's range",
}


@record(kw_only=False)
class InFloat32:
    """Nodes that a provider must not get, by name, with the reason; and findings."""

    nodes: dict[str, str]
    findings: tuple[Finding, ...] = ()


def nodes_in_float32(
    optimized: OptimizedModel,
    graph: Path,
    weights: Path,
    backends: Sequence[Backend],
    options: BuildOptions,
) -> dict[str, InFloat32]:
    """By ORT name, what providers must not get of the variant's `graph`.

    Finding AOTC-N030 tells that no other provider of the variant would take the profile's nodes.
    """
    plan = optimized.plan
    found: dict[str, InFloat32] = {}
    for at, backend in enumerate(backends):
        wanted = backend.computes_in(plan.precision) in HALF_TYPES
        if plan.cpu_only or not wanted or backend.half_by_types or backend.ort_name == CPU:
            continue
        where = f"variant {plan.name}"
        if not backends[at + 1 :]:
            if plan.keep_float32:
                what = (
                    f"{backend.name} computes all of its nodes in {plan.precision}, and no other "
                    "provider of the variant could take those of keep_float32"
                )
                finding = Finding(code="AOTC-N030", what=what, where=where)
                found[backend.ort_name] = InFloat32({}, (finding,))
            continue
        value = options.workers.run(
            "aotc.stages.optimizing.half_by_option:float32_job",
            {
                **request_of(optimized.specialized, options),
                "backend": backend.name,
                "graph": str(graph),
                "weights": str(weights),
            },
            folder=options.work / f"float32-{plan.name}-{backend.name}",
            where=where,
        ).value
        findings = tuple(decode(Finding, item) for item in value["findings"])
        found[backend.ort_name] = InFloat32(value["nodes"], findings)
    return found


def float32_job(request: Json) -> Json:
    """In the worker: the nodes, with the reason, and the findings."""
    model = onnx.load(request["graph"], load_external_data=False)
    weights = Path(request["weights"])
    typed = with_types(model, weights)
    chooser = chooser_for(request, weights, nodes_of_profile(typed, request))
    graph = chooser.graph_of(typed)
    # The lowest number of the type masks as well, so that masks are none of its overflows.
    lower_masks(graph, chooser.half, chooser.read)
    largest, findings = largest_values(typed, request)
    wide = beyond(largest, chooser.half)
    reasons = replace(chooser, wide=tuple(wide)).stated_reasons(typed)
    nodes = {name: _WORDS[why] for name, why in reasons.items()}
    for node in typed.graph.node:
        # An engine holds control flow with all that is in it, or nothing of it.
        inner = [name for name in _inside(node) if name in reasons]
        if inner:
            nodes |= dict.fromkeys([node.name, *_inside(node)], nodes[inner[0]])
    findings += overflow_findings(wide, typed, chooser.half, request)
    return {"nodes": nodes, "findings": [encode(item) for item in findings]}


def _inside(node: onnx.NodeProto) -> list[str]:
    model = onnx.ModelProto()
    model.graph.node.append(node)
    return [inner.name for inner in walk_nodes(model) if inner.name != node.name]
