"""Half precision for a variant: its graph, and the nodes and weights that stay in float32."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.graph import values
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import why_not_cast
from aotc.graph.view import (
    NodeLinks,
    constant_tensors,
    covered_nodes,
    every_graph,
    every_node,
    has_subgraphs,
    standing_for,
)
from aotc.host.cpu import usable_cores
from aotc.pipeline.calibration import calibration_samples
from aotc.pipeline.context import BuildState, requested_backend
from aotc.pipeline.types import OptimizedModel, SpecializedModel, VariantPlan
from aotc.precision.half_conversion import (
    ALWAYS_KEPT,
    HALF_TYPES,
    MIN_BYTES,
    HalfPrecision,
    HalfType,
    StoreInHalf,
    TypedGraph,
    Weight,
    body_models,
    count_casts,
    interface_elements,
    large_weights,
    lift_constants,
    saving_nodes,
)
from aotc.precision.half_ranges import (
    LARGEST,
    can_observe,
    logarithm_nodes,
    lower_masks,
    observing_graph,
    position_nodes,
)
from aotc.precision.half_twins import float_twin
from aotc.precision.quantize import scopes_of
from aotc.providers.base import Backend, Claims
from aotc.providers.named_backends import backend_of
from aotc.session.inference import MODEL, with_types
from aotc.session.padding import Padder
from aotc.session.sessions import create_session, run
from aotc.sizes.runs import TooManyAtOnceError, answer_or_error, answers, runs_at_once
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding, Value
from aotc.spec.precision import matching_names
from aotc.spec.providers import CPU
from aotc.spec.shapes import Padding
from aotc.spec.variant import KEPT, PassRecord, SessionSpec

Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]

# Of calibration data, at even distances: each graph is run on them anew, with nothing fused.
_MOST_SAMPLES: Final = 64
# That a run which observes ranges keeps busy, of more.
_CORES_OF_RUN: Final = 4
# Why a node is kept, as the manifest counts it.
PROFILE: Final = f"{KEPT}profile"
WEIGHTS: Final = f"{KEPT}constants out of range"
ACTIVATIONS: Final = f"{KEPT}activations out of range"
READERS: Final = f"{KEPT}reads values out of range"
KERNELS: Final = f"{KEPT}no kernel"
POSITIONS: Final = f"{KEPT}positions"
LOGARITHMS: Final = f"{KEPT}logarithms"
CASTS: Final = f"{KEPT}saves casts"
SUBGRAPHS: Final = f"{KEPT}subgraphs without products"
_WORDS = {
    PROFILE: "the profile keeps it in float32",
    ACTIVATIONS: "it makes values out of the type's range",
    READERS: "it reads values out of the type's range",
}
# Each round keeps more nodes, and most need one.
_MAX_ROUNDS: Final = 8
# A body without any would compute no faster, between casts in each iteration.
_PRODUCTS: Final = frozenset(
    {"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"}
)
# A finding is one line.
_MAX_NAMED: Final = 8
# The folder of the graph before it was changed, in that of the optimizer.
BEFORE: Final = "before"
# What the first twin of a variant finds, and the others read.
_TYPED: Final = "typed.onnx"
_LARGEST: Final = "largest.json"
_HELD: Final = "held.json"
# The folder of what was observed for one form of a variant, and holds for others.
_RANGES: Final = "ranges"


# Functions of a graph run in the worker, after ONNX Runtime's optimizer: it would write casts of
# its own into a graph in half precision, as its CPU has few such kernels.


@record(kw_only=False)
class HalfRequest:
    """What the worker is asked (None: nothing), the plan that follows, and findings."""

    request: Json
    plan: VariantPlan
    findings: tuple[Finding, ...] = ()


def half_request(specialized: SpecializedModel, state: BuildState) -> HalfRequest:
    """Whether a variant is changed to half precision, and with which inputs it is observed.

    Of one with quantized weights, that is all else, if its profile says so.  A quantized model, one
    in another half precision and one without float32 are left as they are, with finding AOTC-N011.
    Raises N008 if the model's operator set does not know the type.
    """
    plan = specialized.plan
    if not (wanted := plan.half):
        return HalfRequest(None, plan)
    first = backend_of(plan.providers[0], state.context.profile.plugins)
    if not first.half_by_types and not plan.cpu_only:
        return HalfRequest(None, plan)
    if specialized.analyzed.source.capture.quantized:
        why = "the model is quantized"
    else:
        model = onnx.load(specialized.graph, load_external_data=False)
        why = why_left(model.graph, wanted)
        if not why and (lacks := why_not_cast(model, wanted)):
            raise AotcError(
                "AOTC-N008",
                f"the model's operator set does not know {wanted}",
                where=f"variant {plan.name}",
                found=lacks,
                fix="Choose 'precision: float16', or export the model at a later operator set.",
            )
    if why == wanted:
        return HalfRequest(None, plan)
    if why:
        what = f"precision {plan.precision}: {why}, and is left unchanged"
        finding = Finding(code="AOTC-N011", what=what, where=f"variant {plan.name}")
        return HalfRequest(None, replace(plan, precision="keep"), (finding,))
    ranges = state.shared / _RANGES
    ranges.mkdir(exist_ok=True)
    return HalfRequest({**request_of(specialized, state), "ranges": str(ranges)}, plan)


def request_of(specialized: SpecializedModel, state: BuildState) -> Json:
    """What the functions that run in the worker want to know of a variant.

    Raises what `calibration_samples` raises.
    """
    plan = specialized.plan
    analyzed = specialized.analyzed
    given: list[dict[str, Any]] = [
        {"inputs": run.input_paths, "sizes": dict(run.sizes)} for run in analyzed.references
    ]
    if state.context.calibration is not None and not plan.cpu_only:
        samples = calibration_samples(analyzed, state)
        step = max(1, -(-len(samples) // _MOST_SAMPLES))
        given += [{**sample, "sample": True} for sample in samples[::step]]
    references = [
        {**item, "wanted": dict(wanted)}
        for item in given
        if (wanted := analyzed.domain.padded_sizes(plan.buckets, item["sizes"])) is not None
    ]
    return {
        "to": plan.half,
        # ONNX Runtime's CPU computes nothing in half precision that is worth it.
        "stored_only": plan.cpu_only,
        "source": str(analyzed.source.graph),
        "keep_float32": list(plan.keep_float32),
        "failing": list(plan.failing),
        "backend": plan.providers[0],
        "plugins": state.context.plugins(),
        "inputs": [encode(value) for value in analyzed.source.inputs],
        "padding": encode(analyzed.padding),
        "references": references,
        "where": f"variant {plan.name}",
    }


def why_left(graph: onnx.GraphProto, wanted: str) -> str:
    """Why a graph is not changed; `wanted` itself if it is in that type already, "" if it is."""
    elements = {tensor.data_type for tensor in constant_tensors(graph).values()}
    elements |= interface_elements(graph)
    found = [half.name for half in HALF_TYPES.values() if half.onnx_type in elements]
    if found:
        return wanted if wanted in found else f"the model is in {found[0]}"
    if onnx.TensorProto.FLOAT not in elements:
        return "the model computes nothing in float32"
    return ""


def to_half(
    model: onnx.ModelProto, request: Json, made_of: bytes = b""
) -> tuple[PassRecord, tuple[Finding, ...]]:
    """In the worker: change `model`, whose weights are in the working directory, in place.

    Equal `made_of`, if not empty, stand for equal graphs and weights in one build.  Constants that
    change are written into the model.  Raises AOTC-N012 if nothing can be changed.
    """
    half = HALF_TYPES[request["to"]]
    kept_by_profile = named_nodes(model, request, "keep_float32")
    if request["stored_only"]:
        return weights_to_half(model, request, kept_by_profile)
    failing = named_nodes(model, request, "failing")
    lift_constants(model)
    before = onnx.ModelProto()
    before.CopyFrom(model)
    typed = with_types(model, Path())
    chooser = chooser_for(request, Path(), kept_by_profile, failing)
    graph = chooser.graph_of(typed)
    masks = lower_masks(graph, half, chooser.read)
    request = {**request, "weights": ""}
    if made_of:
        largest, findings = _seen_before(typed, request, made_of)
    else:
        largest, findings = largest_values(typed, request)
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
    left = {node.name for node in every_node(typed)}
    matched = {
        "converted": len(left.intersection(changed)),
        "casts": count_casts(model, before),
        **counts,
    }
    if masks:
        matched["masks"] = masks
    kept = tuple(node.name for node in every_node(before) if node.name in reasons)
    return replace(made, matched=dict(sorted(matched.items())), kept=kept), findings


def chooser_for(
    request: Json, weights: Path, kept: frozenset[str], failing: frozenset[str] = frozenset()
) -> Chooser:
    """What decides on the nodes of a graph whose weights are in the folder `weights`."""
    return Chooser(
        HALF_TYPES[request["to"]],
        requested_backend(request),
        partial(read_tensor, folder=weights),
        (),
        kept,
        failing,
    )


def named_nodes(
    model: onnx.ModelProto, request: Json, which: Literal["keep_float32", "failing"]
) -> frozenset[str]:
    """The nodes of `model` that stand for those of the source that the request names there."""
    if not request[which]:
        return frozenset()
    source = onnx.load(request["source"], load_external_data=False)
    names = frozenset(node.name for node in every_node(source))
    wanted = matching_names(names, request[which]) if which == "keep_float32" else request[which]
    return standing_for(source.graph, model.graph, wanted)


@record(kw_only=False)
class Chooser:
    """What decides: the type, the provider, values out of range, and nodes that are kept anyway.

    The provider's kernels of `failing` nodes were seen to fail in the type.
    """

    half: HalfType
    backend: Backend
    read: Read
    wide: Collection[str]
    kept: frozenset[str]
    failing: frozenset[str] = frozenset()
    # By name and place in the file: whether a large constant is in the type's range.
    held: dict[str, bool] = field(default_factory=dict)

    def graph_of(self, model: onnx.ModelProto) -> TypedGraph:
        """The main graph of `model`, whose values all have types."""
        return TypedGraph(model, self.half.tensor_name, self.backend.ort_name)

    def all_reasons(self, graph: TypedGraph) -> dict[str, str]:
        """Why nodes are kept, by name, those in bodies included; nodes without float32 are none."""
        found = self._reasons(graph)
        for inner in self._bodies(graph):
            if any(one.op_type in _PRODUCTS or one.domain for one in every_node(inner.model)):
                found |= self.all_reasons(inner)
            else:
                found |= {
                    node.name: SUBGRAPHS
                    for index, node in enumerate(inner.nodes)
                    if inner.slots[index] or has_subgraphs(node)
                }
        return found

    def stated_reasons(self, model: onnx.ModelProto) -> dict[str, str]:
        """Of all nodes: those that the profile keeps, and that make or read values out of range.

        They hold for providers that choose their kernels and casts themselves.
        """
        wide = frozenset(self.wide)
        found = {}
        for node in every_node(model):
            if node.name in self.kept:
                found[node.name] = PROFILE
            elif wide.intersection(node.output):
                found[node.name] = ACTIVATIONS
            elif wide.intersection(node.input):
                found[node.name] = READERS
        return found

    def changed(self, graph: TypedGraph, kept: Collection[str]) -> list[str]:
        """The names of nodes that change, those in bodies included."""
        found = [
            node.name
            for index, node in enumerate(graph.nodes)
            if graph.slots[index] and node.name not in kept
        ]
        for node in graph.nodes:
            if node.name not in kept:
                for _, model in body_models(graph, node):
                    found += self.changed(self.graph_of(model), kept)
        return found

    def _bodies(self, graph: TypedGraph) -> Iterator[TypedGraph]:
        for node in graph.nodes:
            if node.name not in self.kept:
                for _, model in body_models(graph, node):
                    yield self.graph_of(model)

    def _reasons(self, graph: TypedGraph) -> dict[str, str]:
        narrow = {
            name
            for name, tensor in graph.constants.items()
            if graph.is_float(name) and not self._holds(tensor)
        }
        angles = position_nodes(graph)
        # bfloat16 has the small numbers of float32.
        logarithms = logarithm_nodes(graph) if self.half.name == "float16" else set()
        wide = frozenset(self.wide)
        found: dict[int, str] = {}
        for index, node in enumerate(graph.nodes):
            slots = graph.slots[index]
            if has_subgraphs(node):
                if node.name in self.kept:
                    found[index] = PROFILE
                continue
            if not slots:
                if graph.touches_float(index) and node.op_type != "Constant":
                    found[index] = KERNELS
                continue
            given = [node.input[at] for at in slots.inputs]
            made = [node.output[at] for at in slots.outputs]
            if node.name in self.kept:
                found[index] = PROFILE
            elif node.name in self.failing:
                found[index] = KERNELS
            elif narrow.intersection(given) or not _holds_attribute(node, self.half):
                found[index] = WEIGHTS
            elif wide.intersection(made):
                found[index] = ACTIVATIONS
            elif wide.intersection(given):
                found[index] = READERS
            elif index in angles or node.op_type in ALWAYS_KEPT:
                found[index] = POSITIONS
            elif index in logarithms:
                found[index] = LOGARITHMS
        for index in self._without_kernel(graph, set(found)):
            found[index] = KERNELS
        for index in saving_nodes(graph, set(found)):
            found[index] = CASTS
        return {graph.nodes[index].name: why for index, why in sorted(found.items())}

    def _holds(self, tensor: onnx.TensorProto) -> bool:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return self.half.holds(self.read(tensor))
        offset = {pair.key: pair.value for pair in tensor.external_data}.get("offset", "0")
        key = f"{tensor.name} {offset}"
        if key not in self.held:
            self.held[key] = self.half.holds(self.read(tensor))
        return self.held[key]

    def _without_kernel(self, graph: TypedGraph, kept: set[int]) -> set[int]:
        """Nodes that the provider would refuse in half precision, as it predicts."""
        found: set[int] = set()
        with_bodies = {index for index, node in enumerate(graph.nodes) if has_subgraphs(node)}
        for _ in range(_MAX_ROUNDS):
            trial = onnx.ModelProto()
            trial.CopyFrom(graph.model)
            names = frozenset(graph.nodes[index].name for index in kept | found | with_bodies)
            rewrite = HalfPrecision(to=self.half.name, ep=self.backend.ort_name, kept=names)
            run_passes(trial, (rewrite,))
            claims: Claims | None = self.backend.predict(trial)
            if claims is None:
                return found
            refused = {
                graph.places[item.node] for item in claims.refusals if item.node in graph.places
            }
            new = {index for index in refused - kept - found if graph.slots[index]}
            if not new:
                return found
            found |= new
        return found


def _holds_attribute(node: onnx.NodeProto, half: HalfType) -> bool:
    if node.op_type != "ConstantOfShape":
        return True
    return all(
        half.holds(onnx.numpy_helper.to_array(attribute.t))
        for attribute in node.attribute
        if attribute.name == "value" and attribute.t.data_type == onnx.TensorProto.FLOAT
    )


# Which values leave the range of a half-precision type, found on the reference's inputs.


def largest_values(
    model: onnx.ModelProto, request: Json
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    """The largest finite magnitude of each float32 value on the reference's inputs, by name.

    `model` states the types of its values; its weights are in the folder `weights` of the request.
    Where ONNX Runtime cannot tell, finding AOTC-N013 says so: parity decides alone.  A sample of
    calibration data that does not run is left out, with the same finding.
    """
    try:
        if not request["references"] or not can_observe(model):
            why = "the operator set is too old"
            raise AotcError(
                "AOTC-N013", why if request["references"] else "no input has these sizes"
            )
        return _observed(model, request)
    except AotcError as error:
        what = f"activations could not be observed: {error.found or error.what}"[:300]
        return {}, (Finding(code="AOTC-N013", what=what, where=request["where"]),)


def _seen_before(
    model: onnx.ModelProto, request: Json, made_of: bytes
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    """The largest values; of a graph that another form of the variant had, what was found then."""
    asked = json.dumps([request[name] for name in ("to", "references", "inputs", "padding")])
    name = f"{hashlib.sha256(made_of + asked.encode()).hexdigest()}.json"
    kept = Path(request["ranges"]) / name
    if kept.is_file():
        largest, noticed = json.loads(kept.read_text())
        found = (decode(Finding, item) for item in noticed)
        # It was another variant's, perhaps.
        return largest, tuple(replace(each, where=request["where"]) for each in found)
    largest, findings = largest_values(model, request)
    # Another variant may look for it now.
    Path(name).write_text(json.dumps([largest, [encode(item) for item in findings]]))
    Path(name).replace(kept)
    return largest, findings


def beyond(largest: Mapping[str, float], half: HalfType) -> dict[str, float]:
    """The values that leave the type's range, with their largest magnitude."""
    return {name: size for name, size in largest.items() if size > half.largest}


def overflow_findings(
    wide: Mapping[str, float], model: onnx.ModelProto, half: HalfType, request: Json
) -> tuple[Finding, ...]:
    """AOTC-N029, with the source's nodes whose values leave the range, the largest first.

    A value that no node of the source makes is told with the node of `model` that makes it.
    """
    if not wide:
        return ()
    source = onnx.load(request["source"], load_external_data=False)
    named = source_makers(source.graph, model.graph)
    found: dict[str, float] = {}
    for name, size in wide.items():
        node = named.get(name, name)
        found[node] = max(size, found.get(node, 0.0))
    ordered = sorted(found, key=lambda node: (-found[node], node))
    largest = ", ".join(f"{node!r} {found[node]:.4g}" for node in ordered[:_MAX_NAMED])
    more = f", and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    what = (
        f"{half.name} ends at {half.largest:.6g}, and these nodes make larger values: "
        f"{largest}{more}; they stay in float32"
    )
    return (Finding(code="AOTC-N029", what=what, where=request["where"]),)


def source_makers(source: onnx.GraphProto, rewritten: onnx.GraphProto) -> dict[str, str]:
    """For values of `rewritten`: the source's node that makes them, else the node of `rewritten`.

    Where several nodes of the source became one, it is the last of them.
    """
    links, covered = NodeLinks(source.node), covered_nodes(source, rewritten)
    found = {}
    for node in rewritten.node:
        stands_for = covered.get(node.name) or (node.name,)
        for name in node.output:
            maker = links.maker(name)
            found[name] = maker.name if maker is not None else stands_for[-1]
    return found


def _observed(
    model: onnx.ModelProto, request: Json
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    observing, names = observing_graph(model)
    if not names:
        return {}, ()
    session = create_session(
        observing.SerializeToString(),
        SessionSpec(optimization="disable"),
        providers=[CPU],
        weights_folder=Path(request["weights"]),
        parallel_packing=True,
        as_listed=True,
    )
    padding = decode(Padding, request["padding"]) if request["padding"] else None
    padder = Padder([decode(Value, item) for item in request["inputs"]], padding)

    def observe(reference: Json) -> np.ndarray[Any, Any]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        if wanted != sizes:
            inputs = padder.pad(inputs, sizes, wanted).inputs
        (found,) = run(session, inputs, [LARGEST])
        return np.asarray(found)

    largest: dict[str, float] = {}
    left_out = []
    references = sorted(request["references"], key=_places, reverse=True)
    for reference, found in zip(references, _observations(references, observe), strict=True):
        if isinstance(found, AotcError):
            if not reference.get("sample"):
                raise found
            left_out.append(found.found or found.what)
            continue
        for name, size in zip(names, found, strict=True):
            largest[name] = max(float(size), largest.get(name, 0.0))
    if not left_out:
        return largest, ()
    what = f"{len(left_out)} samples of the calibration data do not run: {left_out[0]}"[:300]
    return largest, (Finding(code="AOTC-N013", what=what, where=request["where"]),)


def _observations(
    references: Sequence[Json], observe: Callable[[Json], np.ndarray[Any, Any]]
) -> Iterator[np.ndarray[Any, Any] | AotcError]:
    """What `observe` returns or raises; of several at once where cores are many.

    One keeps a few busy.  The first alone, which is the largest, tells what memory that takes.
    """
    first, rest = references[0], references[1:]
    yield answer_or_error(observe, first)
    at_once = runs_at_once(len(rest), cores=max(1, (usable_cores() or 1) // _CORES_OF_RUN))
    found: list[np.ndarray[Any, Any] | AotcError] = []
    if at_once > 1:
        with suppress(TooManyAtOnceError):
            found += answers(rest, observe, at_once, lambda: None)
    yield from found
    yield from (answer_or_error(observe, each) for each in rest[len(found) :])


def _places(reference: Json) -> int:
    return math.prod(reference["wanted"].values())


# Weights in half precision for ONNX Runtime's CPU, which computes with them in float32.


def weights_to_half(
    model: onnx.ModelProto, request: Json, kept: frozenset[str]
) -> tuple[PassRecord, tuple[Finding, ...]]:
    """In the worker: store the weights of `model`, which are in the working directory, in half.

    `kept` are names of its nodes whose weights stay in float32.  Finding AOTC-N028 tells that
    nothing is computed in half precision.  Raises AOTC-N012 if no weight can be changed.
    """
    half = HALF_TYPES[request["to"]]
    lift_constants(model)
    sizes = {weight: math.prod(tensor.dims) for weight, tensor in _weights(model).items()}
    left, reasons = _left(model, half, kept, read_tensor)
    counts = Counter(reasons.values())
    changed = sizes.keys() - left
    if not changed:
        raise AotcError(
            "AOTC-N012",
            f"no weight can be stored in {half.name}",
            where=request["where"],
            found=", ".join(f"{count} {why}" for why, count in counts.items())
            or f"none takes {MIN_BYTES} bytes",
            fix="Choose precision: keep.",
        )
    before = _float_bytes(model)
    (made,) = run_passes(model, (StoreInHalf(to=half.name, read=read_tensor, kept=left),))
    saved = 2 * sum(sizes[weight] for weight in changed)
    what = (
        f"ONNX Runtime's CPU provider computes in float32: {len(changed)} weights are stored in "
        f"{half.name}, {saved} of {before} bytes are saved, and calls take as long as before"
    )
    record = replace(
        made,
        matched=dict(sorted({"weights": len(changed), **counts}.items())),
        kept=tuple(reasons),
    )
    return record, (Finding(code="AOTC-N028", what=what, where=request["where"]),)


def rounding_twin(
    model: onnx.ModelProto, request: Json, kept: frozenset[str]
) -> tuple[onnx.ModelProto, frozenset[str]]:
    """A graph that rounds its weights when it runs, as `weights_to_half` stores them.

    Those that nodes named in `kept` read stay as they are; so does the file that has them all.
    With it come the names of the nodes that read rounded ones.
    """
    half = HALF_TYPES[request["to"]]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    lift_constants(made)
    read = partial(read_tensor, folder=Path(request["weights"]))
    left, _ = _left(made, half, kept, read)
    readers = frozenset(node.name for node, given in _readers(made) if given - left)
    run_passes(made, (StoreInHalf(to=half.name, read=read, kept=left, cast_constants=True),))
    return made, readers


def _left(
    model: onnx.ModelProto, half: HalfType, kept: frozenset[str], read: Read
) -> tuple[frozenset[Weight], dict[str, str]]:
    """The weights that stay in float32, and why, by the nodes that read them."""
    weights = _weights(model)
    narrow = {weight for weight, tensor in weights.items() if not half.holds(read(tensor))}
    reasons: dict[str, str] = {}
    left = set(narrow)
    for node, given in _readers(model):
        if node.name in kept:
            reasons[node.name] = PROFILE
            left |= given
        elif given & narrow:
            reasons[node.name] = WEIGHTS
    return frozenset(left), reasons


def _readers(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, set[Weight]]]:
    """The nodes that read large weights, and which."""
    weights = _weights(model)
    known = {id(tensor): weight for weight, tensor in weights.items()}
    names = {name for _, name in weights}
    for scope in scopes_of(model.graph):
        for node in scope.graph.node:
            seen = [scope.constant(name) for name in node.input if name in names]
            given = {known[id(one[0])] for one in seen if one is not None and id(one[0]) in known}
            if given:
                yield node, given


def read_tensor(tensor: onnx.TensorProto, folder: Path = Path()) -> np.ndarray[Any, Any]:
    """The values of a tensor whose data may be in `folder`."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return onnx.numpy_helper.to_array(tensor)
    if tensor.data_type == onnx.TensorProto.FLOAT and all(tensor.dims):
        # Most are large, and none is changed in place.
        entry = {pair.key: pair.value for pair in tensor.external_data}
        file, offset = folder / entry["location"], int(entry.get("offset", "0"))
        return np.memmap(file, "<f4", "r", offset, tuple(tensor.dims))
    loaded = onnx.TensorProto()
    loaded.CopyFrom(tensor)
    load_external_data_for_tensor(loaded, str(folder))
    return onnx.numpy_helper.to_array(loaded)


def _weights(model: onnx.ModelProto) -> dict[Weight, onnx.TensorProto]:
    return {
        (at, tensor.name): tensor
        for at, graph in enumerate(every_graph(model))
        for tensor in large_weights(graph)
    }


def _float_bytes(model: onnx.ModelProto) -> int:
    return sum(
        4 * math.prod(tensor.dims)
        for graph in every_graph(model)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    )


# Nodes that stay in float32 where a provider computes in half precision by an option of its own.
#
# Such a provider computes all that it gets in that type, and what is larger than the type's largest
# number is wrong there without a word (OpenVINO gives the largest). It cannot be told of single
# nodes, so that those go to the next provider.


def nodes_in_float32(
    optimized: OptimizedModel,
    graph: Path,
    weights: Path,
    backends: Sequence[Backend],
    state: BuildState,
) -> dict[str, tuple[dict[str, str], tuple[Finding, ...]]]:
    """By ORT name: the nodes of `graph` that a provider must not get, with the reason; findings.

    Finding AOTC-N030 tells that no other provider of the variant would take the profile's nodes.
    """
    plan = optimized.plan
    found: dict[str, tuple[dict[str, str], tuple[Finding, ...]]] = {}
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
                found[backend.ort_name] = {}, (finding,)
            continue
        value = state.workers.run(
            "aotc.pipeline.half:float32_job",
            {
                **request_of(optimized.specialized, state),
                "backend": backend.name,
                "graph": str(graph),
                "weights": str(weights),
            },
            folder=state.work / f"float32-{plan.name}-{backend.name}",
            where=where,
        ).value
        findings = tuple(decode(Finding, item) for item in value["findings"])
        found[backend.ort_name] = value["nodes"], findings
    return found


def float32_job(request: Json) -> Json:
    """In the worker: the nodes, with the reason, and the findings."""
    model = onnx.load(request["graph"], load_external_data=False)
    weights = Path(request["weights"])
    typed = with_types(model, weights)
    chooser = chooser_for(request, weights, named_nodes(typed, request, "keep_float32"))
    graph = chooser.graph_of(typed)
    # The lowest number of the type masks as well, so that masks are none of its overflows.
    lower_masks(graph, chooser.half, chooser.read)
    largest, findings = largest_values(typed, request)
    wide = beyond(largest, chooser.half)
    reasons = replace(chooser, wide=tuple(wide)).stated_reasons(typed)
    nodes = {name: _WORDS[why] for name, why in reasons.items()}
    for holder, inside in graph.inside.items():
        # An engine holds control flow with all that is in it, or nothing of it.
        inner = [name for name in inside if name in reasons]
        if inner:
            nodes |= dict.fromkeys([holder, *inside], nodes[inner[0]])
    findings += overflow_findings(wide, typed, chooser.half, request)
    return {"nodes": nodes, "findings": [encode(item) for item in findings]}


# Twins of a variant's half-precision graph that the CPU runs, with any further nodes in float32.
#
# They serve to find the nodes that half precision spoils: what is costly is done once for all twins
# of a variant, and none stores weights of its own.


def half_graph_request(optimized: OptimizedModel, state: BuildState) -> Json:
    """What `half_graph` wants to know of a variant whose precision is float16 or bfloat16.

    Its `weights` are the folder of the external data of all twins.
    """
    specialized = optimized.specialized
    before = optimized.graph.parent / BEFORE
    changed = (before / MODEL).is_file()
    seen = state.work / f"half-{specialized.plan.name}"
    seen.mkdir(exist_ok=True)
    return {
        **request_of(specialized, state),
        # Providers that compute in half precision by an option have no changed graph.
        "graph": str(before / MODEL if changed else specialized.graph),
        "weights": str(before if changed else specialized.weights),
        "seen": str(seen),
    }


def half_graph(request: Json, kept: Collection[str], place: Path) -> tuple[Path, frozenset[str]]:
    """In the worker: write the twin to the folder `place`.

    Returns its file, and the names of the nodes of the graph before it that round.
    It computes in float32, and rounds to the type where the variant does, beyond the range to
    infinity.  `kept` are names of nodes of the imported graph that stay in float32 in addition to
    those that the variant keeps.  Values have the names of the imported graph as far as the
    variant's graph computes them, and are float32.  Create its session with the optimization
    `disable`, and with `weights` of the request as folder of its external data.
    """
    weights = Path(request["weights"])
    model = onnx.load(request["graph"], load_external_data=False)
    source = onnx.load(request["source"], load_external_data=False)
    names = standing_for(source.graph, model.graph, kept)
    names |= named_nodes(model, request, "keep_float32")
    if request["stored_only"]:
        made, changed = rounding_twin(model, request, names)
    else:
        failing = named_nodes(model, request, "failing")
        chooser = chooser_for(request, weights, names, failing)
        made, changed = _computing(model, request, chooser)
    place.mkdir(parents=True, exist_ok=True)
    path = place / MODEL
    path.write_bytes(made.SerializeToString(deterministic=True))
    return path, changed


def _computing(
    model: onnx.ModelProto, request: Json, chooser: Chooser
) -> tuple[onnx.ModelProto, frozenset[str]]:
    typed, largest = _seen(model, request)
    held_file = Path(request["seen"]) / _HELD
    chooser = replace(
        chooser,
        wide=tuple(beyond(largest, chooser.half)),
        held=json.loads(held_file.read_text()) if held_file.is_file() else {},
    )
    graph = chooser.graph_of(typed)
    lower_masks(graph, chooser.half, chooser.read)
    reasons = chooser.all_reasons(graph)
    changed = frozenset(chooser.changed(graph, reasons))
    rewrite = HalfPrecision(
        to=chooser.half.name,
        ep=chooser.backend.ort_name,
        kept=frozenset(reasons),
        read=chooser.read,
        cast_constants=True,
    )
    held_file.write_text(json.dumps(chooser.held))
    run_passes(typed, (rewrite,))
    return float_twin(typed, chooser.backend.ort_name, chooser.half.name), changed


def _seen(model: onnx.ModelProto, request: Json) -> tuple[onnx.ModelProto, dict[str, float]]:
    """The graph with its types, and the largest magnitudes; found by the first twin."""
    seen = Path(request["seen"])
    if (seen / _LARGEST).is_file():
        return onnx.load(seen / _TYPED, load_external_data=False), json.loads(
            (seen / _LARGEST).read_text()
        )
    lift_constants(model)
    typed = with_types(model, Path(request["weights"]))
    largest, _ = largest_values(typed, request)
    (seen / _TYPED).write_bytes(typed.SerializeToString(deterministic=True))
    (seen / _LARGEST).write_text(json.dumps(largest))
    return typed, largest
