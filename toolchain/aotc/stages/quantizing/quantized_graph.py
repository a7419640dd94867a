"""The quantized graph of a variant: what a worker is asked, and what it writes.

The worker prepares the graph once (constants folded, normalizations in the convolutions before
them), and observes ranges once; both are kept in the folder of the request.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.precision.kept_names import matching_names
from aotc.contract.precision.quantization import QuantizationSpec, QuantizedForm
from aotc.errors import AotcError
from aotc.graphs.source_nodes import covered_nodes, standing_for
from aotc.graphs.weights import externalize
from aotc.passes.base import run_passes, walk_nodes
from aotc.passes.name_nodes import NameNodes
from aotc.passes.quantize import Quantize
from aotc.passes.quantize.chosen_nodes import Choice, choose, observable
from aotc.passes.quantize.integers import Scheme
from aotc.passes.quantize.observed import Observed
from aotc.passes.quantize.operators import BY_FORM
from aotc.passes.quantize.written_nodes import written_nodes
from aotc.passes.strip_metadata import StripMetadata
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.calibrating.calibration_data import calibration_samples
from aotc.stages.optimizing.integer_products import needs_one_sign
from aotc.stages.quantizing.forms import quantized_form
from aotc.stages.quantizing.observed_ranges import observed_ranges
from aotc.stages.quantizing.prepared_graph import prepared_graph
from aotc.stages.types import SpecializedModel
from aotc.stages.variant_plan import VariantPlan

# The first operator set in which scales may have an axis, and that with the integer operators.
_AXIS_OPSET: Final = 13
_MIN_OPSET: Final = 10


def quantize_request(specialized: SpecializedModel, options: BuildOptions) -> Json:
    """What a worker needs to quantize a variant's graph, with the form that `auto` stands for.

    Raises AOTC-N017 if the profile's statements do not fit, and what `calibration_samples` raises.
    """
    plan, source = specialized.plan, specialized.analyzed.source
    spec, where = plan.quantization, f"variant {plan.name}"
    form = quantized_form(plan, options)
    samples = calibration_samples(specialized.analyzed, options) if form == "static" else ()
    _require_possible(form, spec, where)
    names = [node.name for node in walk_nodes(onnx.load(source.graph, load_external_data=False))]
    kept = matching_names(names, plan.keep_float32)
    digest = hashlib.sha256(str(specialized.graph).encode()).hexdigest()[:12]
    calibration = options.profile.calibration
    return {
        "graph": str(specialized.graph),
        "graph_weights": str(specialized.weights),
        "source": str(source.graph),
        "weights": str(source.weights),
        "folder": str(source.graph.parent / f"quantize-{digest}"),
        "form": form,
        "bits": 4 if plan.precision == "int4" else 8,
        "quantization": encode(spec, full=True),
        "reduce_range": _reduces_range(plan, options),
        "method": calibration.method,
        "percentile": calibration.percentile,
        "samples": list(samples),
        "kept": [name for name in names if name in kept],
        "where": where,
    }


def _reduces_range(plan: VariantPlan, options: BuildOptions) -> bool:
    """Whether weights have 7 bits: as stated, else where 8 would need a form for VNNI beside."""
    spec = plan.quantization
    if spec.reduce_range is not None:
        return spec.reduce_range
    saturates = spec.activations != "int8" and spec.weights != "uint8"
    return saturates and needs_one_sign(plan, options.target)


def _require_possible(form: str, spec: QuantizationSpec, where: str) -> None:
    if unknown := [name for name in spec.operators if name not in BY_FORM[form]]:
        raise AotcError(
            "AOTC-N017",
            f"{unknown[0]} cannot be quantized in the form {form}",
            where=f"{where}: quantization.operators",
            expected=", ".join(sorted(BY_FORM[form])),
            found=", ".join(spec.operators),
        )
    if form == "dynamic" and spec.activations == "int8":
        raise AotcError(
            "AOTC-N017",
            "ONNX quantizes activations to uint8 in each call",
            where=f"{where}: quantization.activations",
            expected="auto or uint8",
            found="int8",
        )


def quantized_graph(request: Json, kept: Collection[str], place: Path) -> Path:
    """In the worker: write the quantized model to the file `place`; returns it.

    Nodes of the source named in `kept`, and those that the profile keeps, stay in float32.
    External data is beside it.  Raises AOTC-N015 if nothing is quantized, and O016.
    """
    write_quantized(request, kept, place)
    return place


def write_quantized(request: Json, kept: Collection[str], place: Path) -> PassRecord:
    """The same; returns the record of the pass."""
    prepared = prepared_graph(request)
    model = onnx.load(prepared)
    source = onnx.load(request["source"], load_external_data=False).graph
    names = frozenset((*request["kept"], *kept))
    left = standing_for(source, model.graph, names) if names else frozenset[str]()
    scheme = _scheme(model, request)
    form: QuantizedForm = request["form"]
    operators = request["quantization"]["operators"]
    observed: Mapping[str, Observed] = {}
    if form == "static":
        observed = observed_ranges(request, observable(model, operators))
    choice = choose(model, form, operators, left, observed)
    if not len(choice.chosen):
        raise _nothing(choice, request)
    chosen = Quantize(
        form=form,
        bits=request["bits"],
        scheme=scheme,
        block_size=request["quantization"]["block_size"],
        method=request["method"],
        chosen=choice.chosen,
        ranges={name: seen.bounds for name, seen in observed.items() if seen.bounds is not None},
    )
    try:
        (made,) = run_passes(model, (chosen,))
    except ImportError as error:
        raise AotcError(
            "AOTC-O016",
            "blocks of weights need a library that is not installed",
            expected="onnx_ir",
            found=str(error),
            where=request["where"],
        ) from None
    choice = choice.limited(written_nodes(model, choice.chosen))
    if not len(choice.chosen):
        raise _nothing(choice, request)
    reasons = _source_names(source, prepared, choice.reasons)
    del model.graph.value_info[:]
    model.ClearField("producer_name")
    model.ClearField("producer_version")
    run_passes(model, (StripMetadata(), NameNodes()))
    place.parent.mkdir(parents=True, exist_ok=True)
    data = place.with_suffix(".bin")
    data.unlink(missing_ok=True)
    externalize(model, place.parent, data.name)
    place.write_bytes(model.SerializeToString(deterministic=True))
    options = (
        {**made.options, "samples": len(request["samples"])} if form == "static" else made.options
    )
    return replace(made, options=options, matched=choice.matched(), kept=reasons)


def quantize_job(request: Json) -> Json:
    """In the worker: the quantized model as `quantized.onnx`, and the record of the pass."""
    return encode(write_quantized(request, (), Path("quantized.onnx")))


def _scheme(model: onnx.ModelProto, request: Json) -> Scheme:
    spec = request["quantization"]
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    if opset < _MIN_OPSET and request["form"] != "weights":
        raise AotcError(
            "AOTC-N015",
            "the operator set has no integers",
            where=request["where"],
            expected=f"{_MIN_OPSET} or later",
            found=str(opset),
        )
    return Scheme(
        activations="uint8" if spec["activations"] == "auto" else spec["activations"],
        weights="int8" if spec["weights"] == "auto" else spec["weights"],
        per_channel=spec["per_channel"] and (opset >= _AXIS_OPSET or request["form"] != "static"),
        reduce_range=request["reduce_range"],
    )


def _source_names(
    source: onnx.GraphProto, prepared: Path, reasons: Mapping[str, str]
) -> tuple[str, ...]:
    """The nodes of the source that those in `reasons` stand for."""
    if not reasons:
        return ()
    graph = onnx.load(prepared, load_external_data=False).graph
    covered = covered_nodes(source, graph)
    found = [name for left in reasons for name in covered.get(left) or (left,)]
    return tuple(dict.fromkeys(found))


def _nothing(choice: Choice, request: Json) -> AotcError:
    counts = Counter(choice.reasons.values())
    return AotcError(
        "AOTC-N015",
        f"no node can be quantized in the form {request['form']}",
        where=request["where"],
        expected=f"one of {', '.join(sorted(BY_FORM[request['form']]))} with constant weights",
        found=", ".join(f"{count} {why}" for why, count in sorted(counts.items())) or "none",
    )
