"""Half precision for a variant: which nodes stay in float32, found on the reference's inputs.

Functions of a graph run in the worker, after ONNX Runtime's optimizer: it would write casts of its
own into a graph in half precision, as its CPU has few such kernels.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.precision.kept_names import matching_names
from aotc.contract.profile import PluginSpec
from aotc.engine.named_backends import backend_of
from aotc.errors import AotcError
from aotc.graphs.source_nodes import standing_for
from aotc.graphs.value_types import with_types
from aotc.passes.base import run_passes, walk_nodes
from aotc.passes.half_precision import HalfPrecision, count_casts
from aotc.passes.half_precision.folded_casts import interface_elements
from aotc.passes.half_precision.half_types import HALF_TYPES
from aotc.passes.half_precision.masks import lower_masks
from aotc.passes.half_precision.typed_graph import lift_constants
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.calibrating.calibration_data import calibration_samples
from aotc.stages.optimizing.half_choice import Chooser
from aotc.stages.optimizing.half_ranges import beyond, largest_values, overflow_findings
from aotc.stages.optimizing.half_weights import read_tensor, weights_to_half
from aotc.stages.types import SpecializedModel
from aotc.stages.variant_plan import VariantPlan

# Of calibration data, at even distances: each graph is run on them anew, with nothing fused.
_MOST_SAMPLES: Final = 64


@record(kw_only=False)
class HalfRequest:
    """What the worker is asked (None: nothing), the plan that follows, and findings."""

    request: Json
    plan: VariantPlan
    findings: tuple[Finding, ...] = ()


def half_request(specialized: SpecializedModel, options: BuildOptions) -> HalfRequest:
    """Whether a variant is changed to half precision, and with which inputs it is observed.

    A quantized model, one in another half precision and one without float32 are left as they are,
    with finding AOTC-N011.
    """
    plan = specialized.plan
    if plan.precision not in HALF_TYPES:
        return HalfRequest(None, plan)
    first = backend_of(plan.providers[0], options.profile.plugins)
    if not first.half_by_types and not plan.cpu_only:
        return HalfRequest(None, plan)
    if specialized.analyzed.source.capture.quantized:
        why = "the model is quantized"
    else:
        graph = onnx.load(specialized.graph, load_external_data=False).graph
        why = why_left(graph, plan.precision)
    if why == plan.precision:
        return HalfRequest(None, plan)
    if why:
        what = f"precision {plan.precision}: {why}, and is left as it is"
        finding = Finding(code="AOTC-N011", what=what, where=f"variant {plan.name}")
        return HalfRequest(None, replace(plan, precision="keep"), (finding,))
    return HalfRequest(request_of(specialized, options), plan)


def request_of(specialized: SpecializedModel, options: BuildOptions) -> Json:
    """What the functions that run in the worker want to know of a variant.

    Raises what `calibration_samples` raises.
    """
    plan = specialized.plan
    analyzed = specialized.analyzed
    given: list[dict[str, Any]] = [
        {"inputs": {name: str(path) for name, path in run.inputs.items()}, "sizes": dict(run.sizes)}
        for run in analyzed.references
    ]
    if options.calibration is not None and not plan.cpu_only:
        samples = calibration_samples(analyzed, options)
        step = max(1, -(-len(samples) // _MOST_SAMPLES))
        given += [{**sample, "sample": True} for sample in samples[::step]]
    references = [
        {**item, "wanted": dict(wanted)}
        for item in given
        if (wanted := analyzed.domain.padded_sizes(plan.buckets, item["sizes"])) is not None
    ]
    return {
        "to": plan.precision,
        # ONNX Runtime's CPU computes nothing in half precision that is worth it.
        "stored_only": plan.cpu_only,
        "source": str(analyzed.source.graph),
        "keep_float32": list(plan.keep_float32),
        "backend": plan.providers[0],
        "plugins": encode(dict(options.profile.plugins)),
        "inputs": [encode(value) for value in analyzed.source.inputs],
        "padding": encode(analyzed.padding),
        "references": references,
        "where": f"variant {plan.name}",
    }


def why_left(graph: onnx.GraphProto, wanted: str) -> str:
    """Why a graph is not changed; `wanted` itself if it is in that type already, "" if it is."""
    elements = {tensor.data_type for tensor in graph.initializer}
    elements |= interface_elements(graph)
    elements |= {
        attribute.t.data_type
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    found = [half.name for half in HALF_TYPES.values() if half.onnx_type in elements]
    if found:
        return wanted if wanted in found else f"the model is in {found[0]}"
    if onnx.TensorProto.FLOAT not in elements:
        return "the model computes nothing in float32"
    return ""


def to_half(model: onnx.ModelProto, request: Json) -> tuple[PassRecord, tuple[Finding, ...]]:
    """In the worker: change `model`, whose weights are in the working directory, in place.

    Constants that change are written into the model.  Raises AOTC-N012 if nothing can be changed.
    """
    half = HALF_TYPES[request["to"]]
    kept_by_profile = nodes_of_profile(model, request)
    if request["stored_only"]:
        return weights_to_half(model, request, kept_by_profile)
    lift_constants(model)
    before = onnx.ModelProto()
    before.CopyFrom(model)
    typed = with_types(model, Path())
    chooser = chooser_for(request, Path(), kept_by_profile)
    graph = chooser.graph_of(typed)
    masks = lower_masks(graph, half, chooser.read)
    largest, findings = largest_values(typed, {**request, "weights": ""})
    wide = beyond(largest, half)
    chooser = replace(chooser, wide=tuple(wide))
    reasons = chooser.all_reasons(graph)
    changed = chooser.changed(graph, reasons)
    if not changed:
        raise AotcError(
            "AOTC-N012",
            f"no node can compute in {half.name}",
            where=request["where"],
            found=", ".join(f"{count} {why}" for why, count in Counter(reasons.values()).items()),
            fix="Choose precision: keep or tf32.",
        )
    findings += overflow_findings(wide, before, half, request)
    rewrite = HalfPrecision(
        to=half.name,
        ep=chooser.backend.ort_name,
        kept=frozenset(reasons),
        read=chooser.read,
    )
    (made,) = run_passes(typed, (rewrite,))
    del typed.graph.value_info[:]
    model.CopyFrom(typed)
    counts = Counter(reasons.values())
    left = {node.name for node in walk_nodes(typed)}
    matched = {
        "converted": len(left.intersection(changed)),
        "casts": count_casts(model, before),
        **counts,
    }
    if masks:
        matched["masks"] = masks
    kept = tuple(node.name for node in walk_nodes(before) if node.name in reasons)
    return replace(made, matched=dict(sorted(matched.items())), kept=kept), findings


def chooser_for(request: Json, weights: Path, kept: frozenset[str]) -> Chooser:
    """What decides on the nodes of a graph whose weights are in the folder `weights`."""
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    return Chooser(
        HALF_TYPES[request["to"]],
        backend_of(request["backend"], plugins),
        partial(read_tensor, folder=weights),
        (),
        kept,
    )


def nodes_of_profile(model: onnx.ModelProto, request: Json) -> frozenset[str]:
    """The nodes of `model` that stand for those that the profile keeps in float32, by name."""
    if not request["keep_float32"]:
        return frozenset()
    source = onnx.load(request["source"], load_external_data=False)
    names = frozenset(node.name for node in walk_nodes(source))
    wanted = matching_names(names, request["keep_float32"])
    return standing_for(source.graph, model.graph, wanted)
