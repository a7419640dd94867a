"""A variant in integers: the build's step between the converted and the optimized graph."""

from __future__ import annotations

import json
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json, decode
from aotc.contract.finding import Finding
from aotc.contract.manifest.toolchain import PassRecord
from aotc.engine.worker import REQUEST
from aotc.passes.base import walk_graphs
from aotc.passes.quantize.chosen_nodes import NOT_OBSERVED
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.quantizing.quantized_graph import quantize_request
from aotc.stages.types import SpecializedModel
from aotc.stages.variant_plan import VariantPlan

QUANTIZED: Final = frozenset({"int8", "int4"})


def is_quantizing(plan: VariantPlan) -> bool:
    """Whether the plan asks for a quantized graph."""
    return plan.precision in QUANTIZED


def quantize(
    specialized: SpecializedModel, options: BuildOptions
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` with a quantized graph and weights of its own, if its precision asks for it.

    A model that is quantized or in half precision, and one without float32 weights, is left as it
    is, with AOTC-N014.  Raises AOTC-N015 (nothing can be quantized), N017 (the profile's statements
    do not fit), O016, and what the calibration raises.
    """
    plan = specialized.plan
    if not is_quantizing(plan):
        return specialized, ()
    where = f"variant {plan.name}"
    if why := _why_left(specialized):
        what = f"precision {plan.precision}: {why}, and is left as it is"
        finding = Finding(code="AOTC-N014", what=what, where=where)
        return replace(specialized, plan=replace(plan, precision="keep")), (finding,)
    options.announce(f"quantize, {where}")
    folder = options.work / f"quantize-{plan.name}"
    value = options.workers.run(
        "aotc.stages.quantizing.quantized_graph:quantize_job",
        quantize_request(specialized, options),
        folder=folder,
        where=where,
    ).value
    record = decode(PassRecord, value)
    made = replace(
        specialized,
        graph=folder / "quantized.onnx",
        own_weights=folder,
        quantized=True,
        passes=(*specialized.passes, record),
    )
    return made, record_findings(record, where)


def record_findings(record: PassRecord, where: str) -> tuple[Finding, ...]:
    """AOTC-O014 if nodes stay in float32 because no sample reached what they read."""
    count = record.matched.get(NOT_OBSERVED, 0)
    if not count:
        return ()
    nodes = f"{count} node{'s' * (count > 1)}"
    what = f"activations of {nodes} were not observed on the calibration data, and stay float32"
    return (Finding(code="AOTC-O014", what=what, where=where),)


def _why_left(specialized: SpecializedModel) -> str:
    """Why a model is not quantized; empty if it is."""
    capture = specialized.analyzed.source.capture
    if capture.quantized:
        return "the model is quantized"
    if capture.half:
        return "the model is in half precision"
    model = onnx.load(specialized.graph, load_external_data=False)
    types = {tensor.data_type for graph in walk_graphs(model) for tensor in graph.initializer}
    types |= {
        attribute.t.data_type
        for graph in walk_graphs(model)
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    return "" if onnx.TensorProto.FLOAT in types else "the model has no float32 weights"


def asked_of(specialized: SpecializedModel) -> Json:
    """What the worker was asked that made a variant's quantized graph, for further such graphs."""
    assert specialized.own_weights is not None
    return json.loads((specialized.own_weights / REQUEST).read_text())["request"]
