"""Half precision for a variant: which nodes stay in float32, found on the reference's inputs.

Functions of a graph run in the worker, after ONNX Runtime's optimizer: it would write casts of its
own into a graph in half precision, as its CPU has few such kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.backends.base import Backend, Claims
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.toolchain import KEPT, PassRecord
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.precision.kept_names import matching_names
from aotc.contract.profile import PluginSpec
from aotc.contract.shapes.padding_rules import Padding
from aotc.engine import values
from aotc.engine.named_backends import backend_of
from aotc.engine.padding import Padder
from aotc.engine.session import create_session, run
from aotc.errors import AotcError
from aotc.graphs.source_nodes import standing_for
from aotc.graphs.value_types import with_types
from aotc.passes.base import run_passes, walk_nodes
from aotc.passes.half_precision import HalfPrecision, count_casts
from aotc.passes.half_precision.boundaries import saving_nodes
from aotc.passes.half_precision.folded_casts import interface_elements
from aotc.passes.half_precision.half_types import HALF_TYPES, HalfType
from aotc.passes.half_precision.logarithms import logarithm_nodes
from aotc.passes.half_precision.masks import lower_masks
from aotc.passes.half_precision.observed_values import can_count, counting_graph
from aotc.passes.half_precision.positions import position_nodes
from aotc.passes.half_precision.slots import ALWAYS_KEPT
from aotc.passes.half_precision.typed_graph import TypedGraph, lift_constants, typed_graph
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.optimizing.half_weights import (
    PROFILE,
    WEIGHTS,
    read_tensor,
    weights_to_half,
)
from aotc.stages.types import (
    SpecializedModel,
)
from aotc.stages.variant_plan import VariantPlan

# Why a node is kept, as the manifest counts it.
ACTIVATIONS: Final = f"{KEPT}activations out of range"
KERNELS: Final = f"{KEPT}no kernel"
POSITIONS: Final = f"{KEPT}positions"
LOGARITHMS: Final = f"{KEPT}logarithms"
CASTS: Final = f"{KEPT}saves casts"
# Each round keeps more nodes, and most need one.
_MAX_ROUNDS: Final = 8


@record(kw_only=False)
class HalfRequest:
    """What the worker is asked (None: nothing), the plan that follows, and findings."""

    request: Json
    plan: VariantPlan
    findings: tuple[Finding, ...] = ()


def uses_pass(plan: VariantPlan) -> bool:
    """Whether the graph of a variant is changed to half precision; others do so by an option."""
    return plan.precision in HALF_TYPES and (plan.on_cuda or plan.cpu_only)


def half_request(specialized: SpecializedModel, options: BuildOptions) -> HalfRequest:
    """Whether a variant is changed to half precision, and with which inputs it is observed.

    A quantized model, one in another half precision and one without float32 are left as they are,
    with finding AOTC-N011.
    """
    plan = specialized.plan
    if not uses_pass(plan):
        return HalfRequest(None, plan)
    why = _why_left(specialized, plan.precision)
    if why == plan.precision:
        return HalfRequest(None, plan)
    if why:
        what = f"precision {plan.precision}: {why}, and is left as it is"
        finding = Finding(code="AOTC-N011", what=what, where=f"variant {plan.name}")
        return HalfRequest(None, replace(plan, precision="keep"), (finding,))
    analyzed = specialized.analyzed
    references = []
    for reference in analyzed.references:
        wanted = analyzed.domain.padded_sizes(plan.buckets, reference.sizes)
        if wanted is not None:
            references.append(
                {
                    "inputs": {name: str(path) for name, path in reference.inputs.items()},
                    "sizes": dict(reference.sizes),
                    "wanted": dict(wanted),
                }
            )
    request = {
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
    return HalfRequest(request, plan)


def _why_left(specialized: SpecializedModel, wanted: str) -> str:
    """Why a model is not changed; `wanted` itself if it is in that type already, "" if it is."""
    source = specialized.analyzed.source
    if source.capture.quantized:
        return "the model is quantized"
    graph = onnx.load(specialized.graph, load_external_data=False).graph
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
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    backend = backend_of(request["backend"], plugins)
    lift_constants(model)
    before = onnx.ModelProto()
    before.CopyFrom(model)
    typed = with_types(model, Path())
    graph = typed_graph(typed, half.tensor_name, backend.ort_name)
    masks = lower_masks(graph, half, read_tensor)
    wide, findings = _wide_values(typed, graph, half, request)
    reasons = _reasons(graph, wide, half, backend, kept_by_profile)
    changed = [
        node.name
        for index, node in enumerate(graph.nodes)
        if graph.slots[index] and node.name not in reasons
    ]
    if not changed:
        raise AotcError(
            "AOTC-N012",
            f"no node can compute in {half.name}",
            where=request["where"],
            found=", ".join(f"{count} {why}" for why, count in Counter(reasons.values()).items()),
            fix="Choose precision: keep or tf32.",
        )
    rewrite = HalfPrecision(
        to=half.name, ep=backend.ort_name, kept=frozenset(reasons), read=read_tensor
    )
    (made,) = run_passes(typed, (rewrite,))
    del typed.graph.value_info[:]
    model.CopyFrom(typed)
    counts = Counter(reasons.values())
    left = {node.name for node in typed.graph.node}
    matched = {
        "converted": len(left.intersection(changed)),
        "casts": count_casts(model, before),
        **counts,
    }
    if masks:
        matched["masks"] = masks
    kept = tuple(node.name for node in before.graph.node if node.name in reasons)
    return replace(made, matched=dict(sorted(matched.items())), kept=kept), findings


def nodes_of_profile(model: onnx.ModelProto, request: Json) -> frozenset[str]:
    """The nodes of `model` that stand for those that the profile keeps in float32, by name."""
    if not request["keep_float32"]:
        return frozenset()
    source = onnx.load(request["source"], load_external_data=False)
    names = frozenset(node.name for node in walk_nodes(source))
    wanted = matching_names(names, request["keep_float32"])
    return standing_for(source.graph, model.graph, wanted)


def _reasons(
    graph: TypedGraph,
    wide: frozenset[str],
    half: HalfType,
    backend: Backend,
    kept_by_profile: frozenset[str] = frozenset(),
) -> dict[str, str]:
    """Why each kept node is kept, by its name; nodes without float32 are none."""
    narrow = {
        name
        for name, tensor in graph.constants.items()
        if graph.is_float(name) and not half.holds(read_tensor(tensor))
    }
    angles = position_nodes(graph)
    # bfloat16 has the small numbers of float32.
    logarithms = logarithm_nodes(graph) if half.name == "float16" else set()
    found: dict[int, str] = {}
    for index, node in enumerate(graph.nodes):
        slots = graph.slots[index]
        if not slots:
            if graph.touches_float(index) and not _is_constant(node):
                found[index] = KERNELS
            continue
        given = [node.input[at] for at in slots.inputs]
        made = [node.output[at] for at in slots.outputs]
        if node.name in kept_by_profile:
            found[index] = PROFILE
        elif narrow.intersection(given) or not _holds_attribute(node, half):
            found[index] = WEIGHTS
        elif wide.intersection((*given, *made)):
            found[index] = ACTIVATIONS
        elif index in angles or node.op_type in ALWAYS_KEPT:
            found[index] = POSITIONS
        elif index in logarithms:
            found[index] = LOGARITHMS
    for index in _without_kernel(graph, set(found), half, backend):
        found[index] = KERNELS
    for index in saving_nodes(graph, set(found)):
        found[index] = CASTS
    return {graph.nodes[index].name: why for index, why in sorted(found.items())}


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant"


def _holds_attribute(node: onnx.NodeProto, half: HalfType) -> bool:
    if node.op_type != "ConstantOfShape":
        return True
    return all(
        half.holds(onnx.numpy_helper.to_array(attribute.t))
        for attribute in node.attribute
        if attribute.name == "value" and attribute.t.data_type == onnx.TensorProto.FLOAT
    )


def _without_kernel(
    graph: TypedGraph, kept: set[int], half: HalfType, backend: Backend
) -> set[int]:
    """Nodes that the provider would refuse in half precision, as it predicts."""
    found: set[int] = set()
    positions = {node.name: index for index, node in enumerate(graph.nodes)}
    for _ in range(_MAX_ROUNDS):
        trial = onnx.ModelProto()
        trial.CopyFrom(graph.model)
        names = frozenset(graph.nodes[index].name for index in kept | found)
        rewrite = HalfPrecision(to=half.name, ep=backend.ort_name, kept=names)
        run_passes(trial, (rewrite,))
        claims: Claims | None = backend.predict(trial)
        if claims is None:
            return found
        refused = {
            positions[refusal.node] for refusal in claims.refusals if refusal.node in positions
        }
        new = {index for index in refused - kept - found if graph.slots[index]}
        if not new:
            return found
        found |= new
    return found


def _wide_values(
    model: onnx.ModelProto, graph: TypedGraph, half: HalfType, request: Json
) -> tuple[frozenset[str], tuple[Finding, ...]]:
    """Values that leave the type's range on one of the reference's inputs.

    Where ONNX Runtime cannot tell, finding AOTC-N013 says so: parity decides alone.
    """
    names = [
        name
        for node in graph.nodes
        for name in node.output
        if graph.is_float(name) and name not in graph.constants
    ]
    names += [value.name for value in model.graph.input if graph.is_float(value.name)]
    references: Sequence[Mapping[str, Any]] = request["references"]
    try:
        if not references or not can_count(model):
            why = "the operator set is too old" if references else "no input has these sizes"
            raise AotcError("AOTC-N013", why)
        return _observed(model, names, half, request), ()
    except AotcError as error:
        what = f"activations could not be observed: {error.found or error.what}"[:300]
        return frozenset(), (Finding(code="AOTC-N013", what=what, where=request["where"]),)


def _observed(
    model: onnx.ModelProto, names: Sequence[str], half: HalfType, request: Json
) -> frozenset[str]:
    counting, counts = counting_graph(model, names, half.largest)
    session = create_session(
        counting.SerializeToString(),
        SessionSpec(optimization="disable"),
        providers=[CPU],
        weights_folder=Path(),
    )
    padding = decode(Padding, request["padding"]) if request["padding"] else None
    padder = Padder([decode(Value, item) for item in request["inputs"]], padding)
    wide: set[str] = set()
    for reference in request["references"]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        if wanted != sizes:
            inputs = padder.pad(inputs, sizes, wanted).inputs
        found = run(session, inputs, list(counts.values()))
        wide.update(name for name, count in zip(counts, found, strict=True) if count > 0)
    return frozenset(wide)
