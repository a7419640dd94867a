"""The quantized graph of a variant: what a worker is asked, and what it writes.

The worker prepares the graph once (constants folded, normalizations in the convolutions before
them), and observes ranges once; both are kept in the folder of the request.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.precision.kept_names import matching_names
from aotc.contract.precision.quantization import QuantizationSpec
from aotc.errors import AotcError
from aotc.graphs.source_nodes import covered_nodes, standing_for
from aotc.graphs.weights import externalize
from aotc.partitioning.compute import NodeCompute, Sizes, sizes_at
from aotc.passes.base import run_passes, walk_nodes
from aotc.passes.name_nodes import NameNodes
from aotc.passes.quantize import Form, Quantize
from aotc.passes.quantize.choice import Choice, choose, observable
from aotc.passes.quantize.integers import Scheme
from aotc.passes.quantize.operators import BY_FORM
from aotc.passes.strip_metadata import StripMetadata
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.quantizing.calibration_data import calibration_samples
from aotc.stages.quantizing.observed_ranges import Range, observed_ranges
from aotc.stages.quantizing.prepared_graph import prepared_graph
from aotc.stages.types import SpecializedModel

# The first operator set in which scales may have an axis, and that with the integer operators.
_AXIS_OPSET: Final = 13
_MIN_OPSET: Final = 10


def quantize_request(specialized: SpecializedModel, options: BuildOptions) -> Json:
    """What a worker needs to quantize a variant's graph, with the form that `auto` stands for.

    Raises AOTC-N017 if the profile's statements do not fit, and what `calibration_samples` raises.
    """
    plan, source = specialized.plan, specialized.analyzed.source
    spec, where = plan.quantization, f"variant {plan.name}"
    wants_samples = plan.precision == "int8" and spec.form in ("auto", "static")
    samples = calibration_samples(specialized.analyzed, options) if wants_samples else ()
    form = _form(plan.precision, spec, bool(samples))
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
        "method": calibration.method,
        "percentile": calibration.percentile,
        "samples": list(samples) if form == "static" else [],
        "opt": specialized.sizes.corner("opt"),
        "max": specialized.sizes.corner("max"),
        "kept": [name for name in names if name in kept],
        "where": where,
    }


def _form(precision: str, spec: QuantizationSpec, has_samples: bool) -> Form:
    if precision == "int4":
        return "weights"
    if spec.form == "auto":
        return "static" if has_samples else "dynamic"
    return spec.form


def _require_possible(form: Form, spec: QuantizationSpec, where: str) -> None:
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
    sizes = _sizes(prepared, model, request)
    scheme = _scheme(model, request)
    form: Form = request["form"]
    operators = request["quantization"]["operators"]
    ranges: Mapping[str, Range | None] = {}
    if form == "static":
        ranges = observed_ranges(request, observable(model, operators), sizes["max"].values)
    choice = choose(model, form, request["bits"], operators, left, ranges, sizes["opt"])
    if not len(choice.chosen):
        raise _nothing(choice, request)
    chosen = Quantize(
        form=form,
        bits=request["bits"],
        scheme=scheme,
        block_size=request["quantization"]["block_size"],
        method=request["method"],
        chosen=choice.chosen,
        ranges={name: value for name, value in ranges.items() if value is not None},
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
    return replace(made, matched=choice.matched(), kept=reasons)


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
        reduce_range=spec["reduce_range"],
    )


def _sizes(prepared: Path, model: onnx.ModelProto, request: Json) -> dict[str, Sizes]:
    """Costs at the optimal and the largest shape, computed once."""
    kept = prepared.with_name("sizes.json")
    if not kept.exists():
        light = onnx.load(prepared, load_external_data=False)
        found = {corner: sizes_at(light, request[corner]) for corner in ("opt", "max")}
        text = json.dumps(
            {
                corner: [
                    {name: [n.flops, n.bytes, n.known] for name, n in sizes.nodes.items()},
                    dict(sizes.values),
                ]
                for corner, sizes in found.items()
            }
        )
        written = Path("sizes.json")
        written.write_text(text)
        written.replace(kept)
    read = json.loads(kept.read_text())
    return {
        corner: Sizes({name: NodeCompute(*each) for name, each in nodes.items()}, values, {})
        for corner, (nodes, values) in read.items()
    }


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
