"""Errors inside of a variant: one instrumented run of each graph, compared value by value."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import numpy as np
import onnx

from aotc.base.records import field, record, replace
from aotc.graph.values import Data, dtype_name
from aotc.graph.view import NodeLinks, inner_graphs, made_values, op_of, read_values, shared_values
from aotc.session.inference import groups_within, outputs_of, with_outputs
from aotc.session.parity import WITHOUT_SLICES, compare, same_bits, sqnr_db
from aotc.session.sessions import create_session, import_onnxruntime, ort_errors, session_options
from aotc.spec.evidence import NodeError, NodeErrors
from aotc.spec.precision import Tolerance
from aotc.spec.providers import CPU
from aotc.spec.variant import SessionSpec

_PLAIN: Final = SessionSpec(optimization="disable")
_OPTIMIZED: Final = "as_loaded.onnx"
_OPTIMIZED_DATA: Final = "as_loaded.bin"
# Packing weights for kernels takes time and memory, and where nothing is computed it is of no use.
_UNPACKED: Final = {"session.disable_prepacking": "1"}
# Channels in blocks, as convolutions in floating point have them, and channels as the last dim.
Layout = Literal["blocked", "channels-last"]
BLOCKED_DOMAIN: Final = "com.microsoft.nchwc"
_BACK: Final = "ReorderOutput"
_CHANNELS_LAST: Final = frozenset({"NhwcMaxPool", "NhwcConv", "NhwcFusedConv"})
# Operators whose output has the layout of what they read.
_ELEMENTWISE: Final = frozenset(
    {"Add", "Mul", "Sub", "Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "HardSigmoid", "Concat"}
    | {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat"}
    | {"QuantizeLinear", "DequantizeLinear", "QuickGelu", "Identity", "Sum", "Max"}
)
# ONNX Runtime's endings of names that are used again, and of nodes for channels in blocks, which
# have the name of a value.
_AGAIN: Final = re.compile(r"_token_\d+$")
_BLOCKED: Final = "_nchwc"
# What may have been fused into the node before it, which keeps its name.
_ACTIVATIONS: Final = frozenset(
    {"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"}
)
MOST_BYTES: Final = 1 << 30
# Both values, as float64 in parts, and the session's own.
_BYTES_PER_ELEMENT: Final = 8
_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
# Endings by which ONNX Runtime's quantizer names what it makes of a value, longest first.
_ENDINGS: Final = (
    "_QuantizeLinear_Output",
    "_QuantizeLinear_Input",
    "_DequantizeLinear_Output",
    "_quantized",
)
# Where quantized operators have the scale of their output; its zero point comes next.
_OUTPUT_SCALES: Final[Mapping[str, int]] = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QLinearSigmoid": 3,
    "QLinearLeakyRelu": 3,
    "QLinearSoftmax": 3,
    "QLinearAveragePool": 3,
    "QLinearGlobalAveragePool": 3,
    "QLinearReduceMean": 3,
    "QLinearConcat": 0,
    "QGemm": 7,
}
# Operators whose output has the scale of their first input.
_MOVING: Final = frozenset(
    {"Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "NhwcMaxPool"}
    | {"Slice", "Gather", "Identity", "Expand", "DepthToSpace", "SpaceToDepth"}
)


@record
class Side:
    """A graph with the folder of its external data, and how its session is created.

    `providers` and `libraries` are by ORT's names; compiled parts lie beside `model`.
    """

    model: Path
    weights: Path
    session: SessionSpec = _PLAIN
    providers: tuple[str, ...] = (CPU,)
    libraries: Mapping[str, Path] = field(default_factory=dict)

    def read(self) -> onnx.ModelProto:
        """The graph, without its external data."""
        return onnx.load(str(self.model), load_external_data=False)

    def opened(
        self, model: onnx.ModelProto, *, computes: bool = True, records_placement: bool = False
    ) -> Any:
        """A session of `model`, a changed copy of the graph; without `computes`, none to run."""
        spec = self.session
        if not computes:
            spec = replace(spec, config={**spec.config, **_UNPACKED})
        return create_session(
            model.SerializeToString(),
            spec,
            providers=self.providers,
            weights_folder=self.weights,
            context_path=self.model,
            libraries=self.libraries,
            compiles=True,
            record_placement=records_placement,
        )

    def values(
        self, model: onnx.ModelProto, inputs: Mapping[str, Data], names: Collection[str]
    ) -> dict[str, Any]:
        """Values of one run of `model`, by name."""
        session = self.opened(with_outputs(model, names))
        return outputs_of(session, inputs, names)


def node_errors(
    source: Side,
    variant: Side,
    inputs: Mapping[str, Data],
    tolerance: Tolerance,
    *,
    fixture: str = "",
    most_bytes: int = MOST_BYTES,
    work: Path | None = None,
) -> NodeErrors:
    """The error of each value that both graphs compute at `inputs`, in the source's order.

    A pass holds at most `most_bytes` of values, or one value.  Quantized values are compared
    dequantized, those in half precision in float32.  What the variant has in another shape, such as
    images with channels last, counts as uncompared.  `work` is a folder for what ONNX Runtime
    writes, by default a temporary one.  Raises AOTC-R005 and R008 where a graph does not run.
    """
    with TemporaryDirectory(dir=work, prefix="nodes-") as folder:
        variant = as_loaded(variant, Path(folder))
        model, rewritten = source.read(), variant.read()
        matched, uncompared = matched_values(model, rewritten)
        answers = outputs_of(variant.opened(rewritten), inputs)
        shapes = tensor_shapes(source, model, inputs, [value.name for value in matched])
        readable = [value for value in matched if value.name in shapes]
        shown, places = readable_values(rewritten, readable, shapes)
        found: dict[str, NodeError] = {}
        changed = False

        def needed(value: MatchedValue) -> int:
            return math.prod(shapes[value.name]) * _BYTES_PER_ELEMENT

        for group in groups_within(readable, needed, most_bytes):
            expected = source.values(model, inputs, [value.name for value in group])
            wanted = [places[value.name] for value in group]
            given = variant.values(shown, inputs, [*dict.fromkeys((*wanted, *answers))])
            changed |= any(not same_bits(answers[name], given[name]) for name in answers)
            for value in group:
                error = _error(
                    value, expected.pop(value.name), given[places[value.name]], tolerance
                )
                if error is not None:
                    found[value.name] = error
            del expected, given
        uncompared += len(matched) - len(found)
        first, worst, errors = _blamed(matched, found)
        return NodeErrors(
            fixture=fixture,
            nodes=errors,
            uncompared=uncompared,
            first=first,
            worst=worst,
            outputs_changed=changed,
        )


def _error(
    value: MatchedValue, expected: Data, given: Data, tolerance: Tolerance
) -> NodeError | None:
    """The error of one value; None if the variant has it in another shape or kind."""
    expected, given = _of_one_type(expected, given)
    if getattr(expected, "shape", None) != getattr(given, "shape", None):
        return None
    if getattr(expected, "dtype", None) != getattr(given, "dtype", None):
        return None
    error = compare(expected, given, tolerance, value.name, beside=WITHOUT_SLICES)
    return NodeError(
        node=value.node,
        op=value.op,
        value=value.name,
        variant_node=value.variant_node,
        covers=value.covers,
        max_abs=error.max_abs,
        max_rel=error.max_rel,
        cosine=error.cosine,
        sqnr_db=sqnr_db(expected, given),
        passed=error.passed,
        reason=error.reason,
    )


def _of_one_type(expected: Any, given: Any) -> tuple[Any, Any]:
    """Values of different types of floating point, both in float32 or the larger one."""
    if not isinstance(expected, np.ndarray) or not isinstance(given, np.ndarray):
        return expected, given
    kinds = {dtype_name(expected.dtype), dtype_name(given.dtype)}
    if len(kinds) == 2 and kinds <= _FLOATS:
        wide = np.float64 if "float64" in kinds else np.float32
        return expected.astype(wide), given.astype(wide)
    return expected, given


def _blamed(
    matched: Sequence[MatchedValue], found: Mapping[str, NodeError]
) -> tuple[str, str, tuple[NodeError, ...]]:
    """The first and the worst node, and all errors with what each node adds to those it reads."""
    reads = {value.name: [name for name in value.reads if name in found] for value in matched}
    first = next(
        (
            error.node
            for name, error in found.items()
            if not error.passed and all(found[read].passed for read in reads[name])
        ),
        "",
    )
    added = largest_added(found, reads)
    errors = tuple(replace(error, added=added[name]) for name, error in found.items())
    candidates = [error for error in errors if not (error.passed and error.max_abs == 0.0)]
    worst = max(candidates, key=_blame, default=None)
    return first, worst.node if worst is not None and _blame(worst) > 0 else "", errors


def _blame(error: NodeError) -> float:
    """How much a node adds; NaN and infinities out of nothing are the most."""
    return float("inf") if error.added is None and not error.passed else error.added or 0.0


def largest_added(
    errors: Mapping[str, NodeError], reads: Mapping[str, Sequence[str]]
) -> dict[str, float | None]:
    """By value: its share of error, less the largest such share among the values that it reads.

    A share is energy of the error by that of the signal: the inverse of the ratio of which 10 log10
    is the signal-to-quantization-noise ratio.  Differences of decibels would say nothing: between
    values that are exact to the rounding a node easily loses 40 dB.  None where a share cannot be
    measured: NaN or infinities differ, or there is no signal.
    """
    shares = {name: _share(error) for name, error in errors.items()}
    added: dict[str, float | None] = {}
    for name, share in shares.items():
        before = [shares[read] for read in reads[name]]
        if share is None and any(found is None for found in before):
            # It was unmeasurable before.
            added[name] = 0.0
        elif share is None:
            added[name] = None
        else:
            added[name] = max(0.0, share - max((x for x in before if x is not None), default=0.0))
    return added


def _share(error: NodeError) -> float | None:
    """Energy of the error by that of the signal; None if it cannot be measured."""
    if error.max_abs == 0.0:
        return 0.0
    if error.max_abs > 1e300 or error.sqnr_db is None:
        return None
    return float(10.0 ** (-error.sqnr_db / 10.0))


def as_loaded(side: Side, folder: Path) -> Side:
    """The graph as ONNX Runtime runs it, with what it fuses at load written out.

    A value that becomes an output is not fused away: at its own level the graph with more outputs
    would be another one, and could hide what is wrong.  So the optimizer's work is kept, and the
    result runs without.  Where several providers divide a graph, ONNX Runtime cannot write
    it, and the side is as it was.
    """
    if side.session.optimization == "disable" or side.providers != (CPU,):
        return side
    config = {
        **side.session.config,
        "session.optimized_model_external_initializers_file_name": _OPTIMIZED_DATA,
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        "session.model_external_initializers_file_folder_path": str(side.weights.resolve()),
    }
    try:
        options = session_options(replace(side.session, config=config))
        options.optimized_model_filepath = str(folder / _OPTIMIZED)
        import_onnxruntime().InferenceSession(str(side.model), options, providers=[CPU])
    except ort_errors():
        return side
    return replace(
        side,
        model=folder / _OPTIMIZED,
        weights=folder,
        session=replace(side.session, optimization="disable"),
    )


def tensor_shapes(
    side: Side, model: onnx.ModelProto, inputs: Mapping[str, Data], names: Iterable[str]
) -> dict[str, tuple[int, ...]]:
    """Shapes of those of `names` that are tensors, at these inputs, by a run that keeps none."""
    asked = set(names)
    described = {
        value.name: value
        for value in side.opened(with_outputs(model, asked), computes=False).get_outputs()
        if value.name in asked and value.type.startswith("tensor(")
    }
    found: dict[str, tuple[int, ...]] = {}
    measured = onnx.ModelProto()
    measured.CopyFrom(model)
    wanted: dict[str, str] = {}
    for name, value in described.items():
        # An empty list means a scalar or an unknown rank.
        if value.shape and all(isinstance(size, int) and size >= 0 for size in value.shape):
            found[name] = tuple(value.shape)
            continue
        wanted[name] = f"{name}/aotc.shape"
        measured.graph.node.append(onnx.helper.make_node("Shape", [name], [wanted[name]]))
        measured.graph.output.append(onnx.ValueInfoProto(name=wanted[name]))
    if wanted:
        seen = outputs_of(side.opened(measured), inputs, wanted.values())
        found |= {name: tuple(map(int, seen[place])) for name, place in wanted.items()}
    return {name: found[name] for name in described}


def readable_values(
    model: onnx.ModelProto,
    matched: Sequence[MatchedValue],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A copy of `model` that dequantizes integers and has channels first; names by source's value.

    `shapes` are those of the source.  External data stays where it is.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    places: dict[str, str] = {}

    def add(op: str, given: list[str], name: str, domain: str = "", **options: Any) -> str:
        made = f"{name}/aotc.{op}"
        node = onnx.helper.make_node(op, given, [made], domain=domain, **options)
        shown.graph.node.append(node)
        return made

    for value in matched:
        place, shape = value.place, shapes[value.name]
        name = place.value
        if place.layout == "blocked" and len(shape) == 4:
            name = add("ReorderOutput", [name], value.name, BLOCKED_DOMAIN, channels=shape[1])
        if place.scale:
            given = [name, place.scale, *([place.zero_point] if place.zero_point else [])]
            name = add("DequantizeLinear", given, value.name)
        if place.layout == "channels-last" and len(shape) > 2:
            axes = [0, len(shape) - 1, *range(1, len(shape) - 1)]
            name = add("Transpose", [name], value.name, perm=axes)
        places[value.name] = name
    return shown, places


@record(kw_only=False)
class Place:
    """Where a variant has a value of its source.

    If it has it in integers, `scale` and `zero_point` name constants of the variant.
    """

    value: str
    scale: str = ""
    zero_point: str = ""
    layout: Layout | None = None


@record
class MatchedValue:
    """A value of the source, and where the variant has it.

    `reads` are the matched values of the source on which it depends directly, and `covers` the
    nodes between.
    """

    name: str
    node: str
    op: str
    place: Place
    variant_node: str
    reads: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()


def matched_values(
    source: onnx.ModelProto, variant: onnx.ModelProto
) -> tuple[tuple[MatchedValue, ...], int]:
    """The values that nodes of both main graphs make, in the source's order; how many are not.

    Rewrites keep the names of the values that they still compute.  Kernels for integers and for
    other layouts of images give theirs other names: they are found by the quantizer's endings, and
    by the names of nodes, which ONNX Runtime keeps or derives from them.  What is inside of control
    flow is not seen, and counts as not matched.  Constants do not count.
    """
    renamed = _Renamed(source.graph, variant.graph)
    found = {
        **renamed.by_node(),
        **renamed.by_ending(),
        **{name: Place(name) for name in shared_values(source.graph, variant.graph)},
        **renamed.quantized_at_once(),
    }
    before, after = renamed.source, NodeLinks(variant.graph.node)
    matched: list[MatchedValue] = []
    unmatched = sum(len(made_values(graph)) for _, graph in inner_graphs(source.graph))
    for node in before.nodes:
        if node.op_type == "Constant":
            continue
        for name in node.output:
            if not name:
                continue
            if name not in found:
                unmatched += 1
                continue
            covers, reads = before.behind((name,), found)
            maker = after.maker(name) or after.maker(found[name].value)
            assert maker is not None
            matched.append(
                MatchedValue(
                    name=name,
                    node=node.name,
                    op=op_of(node),
                    place=found[name],
                    variant_node=maker.name,
                    reads=reads,
                    covers=tuple(before.nodes[at].name for at in covers),
                )
            )
    return tuple(matched), unmatched


class _Renamed:
    """Values of a source that its variant has under other names."""

    def __init__(self, source: onnx.GraphProto, variant: onnx.GraphProto) -> None:
        self.variant = variant
        self.source = NodeLinks(source.node)
        self.names = {_AGAIN.sub("", node.name) for node in variant.node}
        self.scales = scales(variant)
        self.layouts = layouts(variant)

    def by_ending(self) -> dict[str, Place]:
        """Quantized and dequantized values that have the name of the source's, and an ending."""
        quantized: dict[str, Place] = {}
        plain: dict[str, Place] = {}
        for node in self.variant.node:
            for value in node.output:
                stem = without_ending(value)
                if stem == value or stem not in self.source.producers:
                    continue
                if value in self.scales:
                    quantized.setdefault(stem, self._place(value))
                elif node.op_type == "DequantizeLinear":
                    plain.setdefault(stem, self._place(value))
        return {**plain, **quantized}

    def by_node(self) -> dict[str, Place]:
        """Values of nodes that have the name of the source's, in integers or another layout."""
        found: dict[str, Place] = {}
        for node in self.variant.node:
            if not node.output or not node.output[0]:
                continue
            value = node.output[0]
            if value not in self.scales and value not in self.layouts:
                continue
            start = node.name.removesuffix(_BLOCKED)
            if node.domain != BLOCKED_DOMAIN or start not in self.source.producers:
                own = self._own(node) if node.op_type != "QuantizeLinear" else None
                if own is None:
                    continue
                start = own.output[0]
            found[self._with_fused(start, node)] = self._place(value)
        return found

    def quantized_at_once(self) -> dict[str, Place]:
        """By value that only QuantizeLinear reads: what that makes of it.

        Quantizers drop a Relu whose effect the bounds of the integers have as well, so that the
        value itself is another one than in the source.
        """
        others = {value.name for value in self.variant.output}
        found: dict[str, Place] = {}
        for node in self.variant.node:
            stem = without_ending(node.output[0]) if node.output else ""
            if (
                node.op_type == "QuantizeLinear"
                and node.output[0] in self.scales
                # Else ONNX Runtime dropped it, and the value is the one before it.
                and (stem in (node.input[0], node.output[0]) or stem not in self.source.producers)
            ):
                found.setdefault(node.input[0], self._place(node.output[0]))
                continue
            others.update(read_values(node))
        return {name: place for name, place in found.items() if name not in others}

    def _place(self, value: str) -> Place:
        scale, zero_point = self.scales.get(value, ("", ""))
        return Place(value, scale, zero_point, self.layouts.get(value))

    def _own(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The source's node that a node of the variant is named after."""
        places = self.source.places
        index = places.get(node.name, places.get(_AGAIN.sub("", node.name)))
        return self.source.nodes[index] if index is not None else None

    def _with_fused(self, value: str, node: onnx.NodeProto) -> str:
        """The value that a node makes which began as the one that makes `value`."""
        fusible: set[str] = set()
        if "Conv" in node.op_type:
            # Its weights have taken it in.
            fusible.add("BatchNormalization")
        if node.op_type.startswith(("QLinear", "QGemm")) or _has_activation(node):
            fusible |= _ACTIVATIONS
        if node.domain == BLOCKED_DOMAIN and len(node.input) > 3 and node.input[3]:
            fusible.add("Add")
        return last_fused(value, self.source, fusible, self.names)


def _has_activation(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "activation" for attribute in node.attribute)


def last_fused(value: str, links: NodeLinks, fusible: set[str], names: set[str]) -> str:
    """The last value after `value`, each the only thing read of the one before by a fused node.

    Each kind in `fusible` is fused once; nodes in `names` are still there.
    """
    left = set(fusible)
    maker = links.maker(value)
    if maker is not None and maker.op_type in _ACTIVATIONS:
        left -= _ACTIVATIONS
    while True:
        readers = links.readers.get(value, ())
        after = links.nodes[readers[0]] if len(readers) == 1 else None
        if after is None or after.op_type not in left or after.name in names:
            return value
        if list(after.input).count(value) > 1:
            return value
        left -= _ACTIVATIONS if after.op_type in _ACTIVATIONS else {after.op_type}
        value = after.output[0]


def layouts(graph: onnx.GraphProto) -> dict[str, Layout]:
    """By value of the main graph: its layout, if it is not the model's own."""
    found: dict[str, Layout] = {}
    for node in graph.node:
        layout: Layout | None = None
        if node.domain == BLOCKED_DOMAIN:
            layout = None if node.op_type == _BACK else "blocked"
            if node.op_type == "ReorderInput":
                layout = "blocked"
        elif node.op_type in _CHANNELS_LAST or any(
            attribute.name == "channels_last" and attribute.i for attribute in node.attribute
        ):
            layout = "channels-last"
        elif node.op_type in _ELEMENTWISE:
            layout = next((found[name] for name in node.input if name in found), None)
        if layout is not None:
            found.update((name, layout) for name in node.output if name)
    return found


def without_ending(name: str) -> str:
    """The name of the value that a quantized or dequantized one was made of."""
    for ending in _ENDINGS:
        stem, found, rest = name.rpartition(ending)
        if found and (not rest or rest.startswith(("/", "_token_"))):
            return stem
    return name


def scales(graph: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    """By quantized value of the main graph: the names of its scale and zero point (or empty).

    Only scales that are constants of one element count.
    """
    single = {tensor.name for tensor in graph.initializer if math.prod(tensor.dims) == 1}
    found: dict[str, tuple[str, str]] = {}

    def add(value: str, inputs: list[str], at: int) -> None:
        scale = inputs[at] if at < len(inputs) else ""
        zero = inputs[at + 1] if at + 1 < len(inputs) else ""
        if value and scale in single and (not zero or zero in single):
            found.setdefault(value, (scale, zero))

    for node in graph.node:
        inputs = list(node.input)
        if node.op_type in _OUTPUT_SCALES and node.output:
            add(node.output[0], inputs, _OUTPUT_SCALES[node.op_type])
        if node.op_type == "DequantizeLinear" or node.op_type.startswith(("QLinear", "QGemm")):
            first = 2 if node.op_type == "QLinearConcat" else 0
            for at in range(first, len(inputs) - 2, 3):
                add(inputs[at], inputs, at + 1)
            if len(inputs) == 2:
                add(inputs[0], inputs, 1)
    for nodes, forwards in ((list(graph.node), True), (list(reversed(graph.node)), False)):
        for node in nodes:
            if node.op_type not in _MOVING or not node.input or not node.output:
                continue
            ends = (node.input[0], node.output[0])
            known, wanted = ends if forwards else ends[::-1]
            if known in found:
                found.setdefault(wanted, found[known])
    return found
