"""Values for which half precision is too small or too coarse: masks, logarithms, positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aotc.base.records import field, record
from aotc.graph.passes.base import all_names, free_name, set_nodes
from aotc.graph.passes.convert_opset import opset_of
from aotc.graph.types import stated_types
from aotc.graph.view import subgraphs
from aotc.precision.half_conversion import FLOAT, MOVING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import onnx

    from aotc.precision.half_conversion import HalfType, Read, TypedGraph

    Add = Callable[..., str]


# What a small number passes on its way to a logarithm.
_LED_THROUGH: Final = MOVING | {
    "Abs", "Add", "Clip", "Div", "Max", "Min", "Mul", "Pow", "ReduceL2", "ReduceMean", "ReduceSum",
    "ReduceSumSquare", "Relu", "Sqrt", "Sub", "Sum",
}  # fmt: skip
# With these a signal is turned into its spectrum; a network has activations as well.
_TRANSFORMS: Final = (_LED_THROUGH - {"Relu"}) | {"Cast", "Conv", "Gemm", "MatMul", "Neg"}
# Small results of numbers that are not small.
_ENDS: Final = frozenset({"Exp", "Sigmoid", "Softmax"})
# Further up a sum may be that of all blocks of a model.
_MAX_STEPS: Final = 8
# What masks are lowered to.
LOWEST: Final = -16384.0
# What a mask passes on its way to the scores.
_COMBINING: Final = MOVING | {"Add", "Mul", "Cast", "Gather", "ScatterND", "Trilu"}
# The input that is added to the scores, by operator.
_BIAS: Final = {
    ("com.microsoft", "Attention"): 5,
    ("com.microsoft", "MultiHeadAttention"): 5,
    ("com.microsoft", "GroupQueryAttention"): 10,
    ("", "Attention"): 3,
}
_FLOAT_MAX: Final = 3.4028234663852886e38
# The output of a graph that observes.
LARGEST: Final = "aotc_largest"
# The first operator set with all that observes.
_MIN_OPSET: Final = 9
# What has all numbers of its first input, and no others.
_ARRANGING: Final = frozenset(
    {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
# From here the axes of ReduceMax are an input.
_AXES_AS_INPUT: Final = 18
_FLOAT = 1
# What positions are computed by.
_ARITHMETIC: Final = MOVING | {
    "Add", "Cast", "Ceil", "Div", "Exp", "Floor", "MatMul", "Mul", "Neg", "Pow", "Range",
    "Reciprocal", "Round", "Sqrt", "Sub",
}  # fmt: skip
_ANGLES: Final = frozenset({"Cos", "Sin"})


def logarithm_nodes(graph: TypedGraph) -> set[int]:
    """The positions of logarithms, of cheap nodes at most 8 steps before, and of whole spectra.

    A logarithm turns a relative error into an absolute one.  Below 6e-5 float16 has fewer digits
    the smaller a number is, and below 6e-8 only 0: powers of a spectrum and probabilities are that
    small.  A spectrum is kept as a whole, since its quiet parts are small sums of large products.
    """
    logarithms = {index for index, node in enumerate(graph.nodes) if node.op_type == "Log"}
    found = set(logarithms)
    last = logarithms
    for _ in range(_MAX_STEPS):
        before = {made for index in last for made in _before(graph, index)}
        before = {index for index in before - found if _leads(graph, index)}
        found |= before
        last = {index for index in before if graph.nodes[index].op_type not in _ENDS}
    for index in logarithms:
        found |= _spectrum(graph, index)
    return found


def _spectrum(graph: TypedGraph, logarithm: int) -> set[int]:
    """All that leads from inputs to a logarithm; empty if some of it is no signal processing."""
    found: set[int] = set()
    pending = [logarithm]
    while pending:
        before = _before(graph, pending.pop()) - found
        if any(graph.nodes[index].op_type not in _TRANSFORMS for index in before):
            return set()
        found |= before
        pending += before
    return found


def _before(graph: TypedGraph, index: int) -> set[int]:
    names = [name for name in graph.nodes[index].input if graph.is_float(name)]
    return {graph.producers[name] for name in names if name in graph.producers}


def _leads(graph: TypedGraph, index: int) -> bool:
    return graph.nodes[index].op_type in _LED_THROUGH | _ENDS


def lower_masks(graph: TypedGraph, half: HalfType, read: Read) -> int:
    """Rewrite the constants that mask, in place; returns how many.

    They are very negative numbers that are only added to what a softmax reads.  Exporters write the
    lowest number of float32, which half precision lacks.  A softmax gives exactly 0 for any number
    that is some hundred below the largest, so another one that low means the same; `LOWEST` leaves
    room for sums of several masks and for the scores.
    """
    import numpy as np
    import onnx

    found = 0
    known: dict[str, bool] = {}
    for name, tensor in graph.constants.items():
        if not graph.is_float(name) or not _only_masks(graph, name, known):
            continue
        values = read(tensor)
        if _is_mask(values, half):
            lowered = np.where(np.isfinite(values) & (values < LOWEST), np.float32(LOWEST), values)
            tensor.CopyFrom(onnx.numpy_helper.from_array(lowered.astype(np.float32), name))
            found += 1
    for node in graph.nodes:
        if node.op_type != "ConstantOfShape" or not _only_masks(graph, node.output[0], known):
            continue
        for attribute in node.attribute:
            values = onnx.numpy_helper.to_array(attribute.t)
            if values.dtype == np.float32 and _is_mask(values, half):
                lowered = np.full(values.shape, LOWEST, np.float32)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(lowered))
                found += 1
    return found


def _is_mask(values: np.ndarray[Any, Any], half: HalfType) -> bool:
    import numpy as np

    finite = values[np.isfinite(values)]
    return bool(finite.size) and bool(finite.min() < -half.largest) and bool(finite.max() <= 0)


def _only_masks(graph: TypedGraph, name: str, known: dict[str, bool]) -> bool:
    """Whether every path from a value ends in the scores of a softmax."""
    if name not in known:
        known[name] = False
        readers = graph.readers.get(name, ())
        known[name] = (
            bool(readers)
            and name not in graph.outputs
            and all(_masks(graph, index, name, known) for index in readers)
        )
    return known[name]


def _masks(graph: TypedGraph, index: int, name: str, known: dict[str, bool]) -> bool:
    node = graph.nodes[index]
    if node.op_type == "Softmax":
        return True
    position = _BIAS.get((node.domain, node.op_type))
    if position is not None:
        return [at for at, given in enumerate(node.input) if given == name] == [position]
    if node.op_type not in _COMBINING:
        return False
    made = [given for given in node.output if given]
    return all(graph.is_float(given) and _only_masks(graph, given, known) for given in made)


def observing_graph(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """A copy of `model` with the output `LARGEST`, and the values that it is about, in order.

    `LARGEST` is float32 of shape [values], and the only output, so that a run needs little memory
    beside that of the model.  A body of control flow hands its own on to the graph around it: `If`
    as a result, `Loop` and `Scan` as a result of each iteration.  Infinities are left out, as every
    floating-point type has them, and values whose type is not stated.  A value of a body that
    another body has too stands there twice.
    """
    import numpy as np
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    writer = _Writer(used=all_names(made), opset=opset_of(model))
    writer.limit = free_name("aotc_float_max", writer.used)
    writer.zeros = free_name("aotc_zero", writer.used)
    writer.flat = free_name("aotc_flat", writer.used)
    for name, value in (
        (writer.limit, np.float32(_FLOAT_MAX)),
        (writer.zeros, np.zeros(1, np.float32)),
        (writer.flat, np.array([-1], np.int64)),
    ):
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    names = writer.rewrite(graph, [value.name for value in graph.input], LARGEST)
    del graph.output[:]
    graph.output.append(
        onnx.helper.make_tensor_value_info(LARGEST, onnx.TensorProto.FLOAT, [len(names)])
    )
    made.ir_version = max(made.ir_version, 4)
    return made, tuple(names)


def can_observe(model: onnx.ModelProto) -> bool:
    """Whether the model's operator set has what observes."""
    return opset_of(model) >= _MIN_OPSET


def _arranges(node: onnx.NodeProto) -> bool:
    return node.op_type in _ARRANGING and node.domain in ("", "ai.onnx")


@record(frozen=False)
class _Writer:
    """Adds nodes to graphs; `limit`, `zeros` and `flat` are constants of the main graph."""

    used: set[str]
    opset: int
    limit: str = ""
    zeros: str = ""
    flat: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def rewrite(self, graph: onnx.GraphProto, inputs: Sequence[str], result: str) -> list[str]:
        """Make `result`, the largest magnitudes of the values of `graph`, which are returned."""
        import onnx

        types = stated_types(graph)
        constants = {tensor.name for tensor in graph.initializer}
        names: list[str] = []
        parts: list[str] = []
        nodes: list[onnx.NodeProto] = []

        node = self._adding_to(nodes)
        largest: dict[str, str] = {}

        def observe(name: str, arranged_from: str = "") -> None:
            if types.get(name) == FLOAT and name not in constants:
                largest[name] = largest.get(arranged_from) or self._largest_of(name, node)
                parts.append(largest[name])
                names.append(name)

        for name in inputs:
            observe(name)
        for original in graph.node:
            inner, found = self._bodies(original)
            nodes.append(original)
            if inner:
                names += inner
                parts.append(self._of_all_iterations(original, found, len(inner), node))
            arranged_from = original.input[0] if _arranges(original) else ""
            for name in original.output:
                if name and name != found:
                    observe(name, arranged_from)
        if parts:
            nodes.append(onnx.helper.make_node("Concat", parts, [result], name=result, axis=0))
        set_nodes(graph, nodes)
        return names

    def _adding_to(self, nodes: list[onnx.NodeProto]) -> Add:
        """A function that adds a node of one output, whose name it returns."""
        import onnx

        def add(op: str, given: list[str], **attributes: Any) -> str:
            made = free_name(f"aotc_{op.lower()}", self.used)
            nodes.append(onnx.helper.make_node(op, given, [made], name=made, **attributes))
            return made

        return add

    def _largest_of(self, name: str, node: Add) -> str:
        """The largest magnitude of a value, of shape [1].

        Its ends are read without copying it.  Only if one of them is infinite or no number, or
        there is none, are the finite magnitudes singled out.
        """

        ends = [node("Abs", [node(op, [name], keepdims=0)]) for op in ("ReduceMax", "ReduceMin")]
        size = node("Max", ends)
        finite: list[onnx.NodeProto] = []
        result = self._adding_to(finite)("Reshape", [size, self.flat])
        branches = {"then_branch": self._branch(finite, result)}
        careful: list[onnx.NodeProto] = []
        add = self._adding_to(careful)
        sizes = add("Abs", [name])
        flat = add("Where", [add("Greater", [sizes, self.limit]), self.zeros, sizes])
        flat = add("Reshape", [flat, self.flat])
        # A value may have no elements.
        flat = add("Concat", [flat, self.zeros], axis=0)
        branches["else_branch"] = self._branch(careful, add("ReduceMax", [flat], keepdims=1))
        return node("If", [node("Less", [size, self.limit])], **branches)

    def _branch(self, nodes: Sequence[onnx.NodeProto], result: str) -> onnx.GraphProto:
        import onnx

        made = onnx.helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, [1])
        return onnx.helper.make_graph(nodes, f"{result}_branch", [], [made])

    def _bodies(self, node: onnx.NodeProto) -> tuple[list[str], str]:
        """Let the bodies of a node tell their values, and the node hand them on as an output."""
        bodies = list(subgraphs(node))
        if not bodies or node.op_type not in ("If", "Loop", "Scan"):
            return [], ""
        own = [free_name("aotc_largest_inside", self.used) for _ in bodies]
        names = []
        for body, result in zip(bodies, own, strict=True):
            names.append(self.rewrite(body, [value.name for value in body.input], result))
        if not any(names):
            return [], ""
        for index, body in enumerate(bodies):
            self._state_result(body, own[index], [len(found) for found in names], index)
        made = free_name("aotc_largest_of_bodies", self.used)
        node.output.append(made)
        return [name for found in names for name in found], made

    def _state_result(
        self, body: onnx.GraphProto, own: str, counts: Sequence[int], index: int
    ) -> None:
        """Give a body its result: its own numbers among zeros for those of the other branch."""
        import numpy as np
        import onnx

        parts = []
        for at, count in enumerate(counts):
            if at == index and count:
                parts.append(own)
            elif count:
                zeros = free_name("aotc_zeros", self.used)
                tensor = onnx.numpy_helper.from_array(np.zeros(count, np.float32))
                body.node.append(
                    onnx.helper.make_node("Constant", [], [zeros], name=zeros, value=tensor)
                )
                parts.append(zeros)
        result = free_name("aotc_all_largest", self.used)
        body.node.append(onnx.helper.make_node("Concat", parts, [result], name=result, axis=0))
        body.output.append(onnx.helper.make_tensor_value_info(result, _FLOAT, [sum(counts)]))

    def _of_all_iterations(self, node: onnx.NodeProto, found: str, count: int, add: Add) -> str:
        """One number for each value of the bodies, of all iterations if there are any."""
        import numpy as np
        import onnx

        if node.op_type == "If":
            return found
        for attribute in node.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.append(0)
        zeros = onnx.numpy_helper.from_array(np.zeros((1, count), np.float32))
        # Without an iteration ONNX Runtime would refuse to reduce.
        stacked = add("Concat", [found, add("Constant", [], value=zeros)], axis=0)
        if self.opset < _AXES_AS_INPUT:
            return add("ReduceMax", [stacked], axes=[0], keepdims=0)
        first = onnx.numpy_helper.from_array(np.zeros(1, np.int64))
        return add("ReduceMax", [stacked, add("Constant", [], value=first)], keepdims=0)


def position_nodes(graph: TypedGraph) -> set[int]:
    """Nodes that compute sines of positions, or indices, with all that leads to them.

    At 2048 float16 has no fraction left, so sines would be wrong, and sizes rounded.  They start
    from inputs, constants and integers, and only do arithmetic.
    """
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        to_integer = (
            node.op_type == "Cast"
            and graph.is_float(node.input[0])
            and not any(graph.is_float(name) for name in node.output)
            and "int" in graph.types.get(node.output[0], "")
        )
        if node.op_type not in _ANGLES and not to_integer:
            continue
        cone = _cone(graph, index)
        if cone is not None:
            found |= cone
    return found


def _cone(graph: TypedGraph, start: int) -> set[int] | None:
    """The nodes that lead to `start`, with it; None if some do more than arithmetic."""
    seen = {start}
    pending = [start]
    while pending:
        for name in graph.nodes[pending.pop()].input:
            before = graph.producers.get(name)
            if before is None or before in seen or not graph.is_float(name):
                continue
            if graph.nodes[before].op_type not in _ARITHMETIC:
                return None
            seen.add(before)
            pending.append(before)
    return seen
