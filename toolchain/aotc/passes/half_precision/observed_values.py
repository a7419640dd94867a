"""A graph that tells, for each of its float32 values, the largest finite magnitude in it.

These are its only output, so that a run needs little memory beside that of the model.  A body of
control flow hands its own on to the graph around it: `If` as a result, `Loop` and `Scan` as a
result of each iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aotc.backends.kernels.type_names import stated_types, subgraphs
from aotc.contract.operator_domains import STANDARD
from aotc.passes.base import all_names
from aotc.passes.half_precision.slots import FLOAT
from aotc.records import field, record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    Add = Callable[..., str]

_FLOAT_MAX: Final = 3.4028234663852886e38
LARGEST: Final = "aotc_largest"
# Where.
_MIN_OPSET: Final = 9
# From here the axes of ReduceMax are an input.
_AXES_AS_INPUT: Final = 18
_FLOAT = 1


def observing_graph(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """A copy of `model` with the output `LARGEST`, and the values that it is about, in order.

    `LARGEST` is float32 of shape [values].  Infinities are left out, as every floating-point type
    has them, and values whose type is not stated.  A value of a body that another body has too
    stands there twice.
    """
    import numpy as np
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    writer = _Writer(used=all_names(made), opset=_opset(model))
    writer.limit = writer.free("aotc_float_max")
    writer.zeros = writer.free("aotc_zero")
    writer.flat = writer.free("aotc_flat")
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
    return _opset(model) >= _MIN_OPSET


def _opset(model: onnx.ModelProto) -> int:
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    return max((opsets.get(domain, 0) for domain in STANDARD), default=0)


@record(frozen=False)
class _Writer:
    """Adds nodes to graphs; `limit`, `zeros` and `flat` are constants of the main graph."""

    used: set[str]
    opset: int
    limit: str = ""
    zeros: str = ""
    flat: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def free(self, name: str) -> str:
        """A name that is not used yet, and is now."""
        while name in self.used:
            name += "_"
        self.used.add(name)
        return name

    def rewrite(self, graph: onnx.GraphProto, inputs: Sequence[str], result: str) -> list[str]:
        """Make `result`, the largest magnitudes of the values of `graph`, which are returned."""
        import onnx

        types = stated_types(graph)
        constants = {tensor.name for tensor in graph.initializer}
        names: list[str] = []
        parts: list[str] = []
        nodes: list[onnx.NodeProto] = []

        def node(op: str, given: list[str], **attributes: Any) -> str:
            made = self.free(f"aotc_{op.lower()}")
            nodes.append(onnx.helper.make_node(op, given, [made], name=made, **attributes))
            return made

        def observe(name: str) -> None:
            if types.get(name) != FLOAT or name in constants:
                return
            size = node("Abs", [name])
            infinite = node("Greater", [size, self.limit])
            flat = node("Where", [infinite, self.zeros, size])
            flat = node("Reshape", [flat, self.flat])
            # A value may have no elements.
            flat = node("Concat", [flat, self.zeros], axis=0)
            parts.append(node("ReduceMax", [flat], keepdims=1))
            names.append(name)

        for name in inputs:
            observe(name)
        for original in graph.node:
            inner, found = self._bodies(original)
            nodes.append(original)
            if inner:
                names += inner
                parts.append(self._of_all_iterations(original, found, len(inner), node))
            for name in original.output:
                if name and name != found:
                    observe(name)
        if parts:
            nodes.append(onnx.helper.make_node("Concat", parts, [result], name=result, axis=0))
        copied = [type(one).FromString(one.SerializeToString()) for one in nodes]
        del graph.node[:]
        graph.node.extend(copied)
        return names

    def _bodies(self, node: onnx.NodeProto) -> tuple[list[str], str]:
        """Let the bodies of a node tell their values, and the node hand them on as an output."""
        bodies = [body for _, body in subgraphs(node)]
        if not bodies or node.op_type not in ("If", "Loop", "Scan"):
            return [], ""
        own = [self.free("aotc_largest_inside") for _ in bodies]
        names = []
        for body, result in zip(bodies, own, strict=True):
            names.append(self.rewrite(body, [value.name for value in body.input], result))
        if not any(names):
            return [], ""
        for index, body in enumerate(bodies):
            self._state_result(body, own[index], [len(found) for found in names], index)
        made = self.free("aotc_largest_of_bodies")
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
                zeros = self.free("aotc_zeros")
                tensor = onnx.numpy_helper.from_array(np.zeros(count, np.float32))
                body.node.append(
                    onnx.helper.make_node("Constant", [], [zeros], name=zeros, value=tensor)
                )
                parts.append(zeros)
        result = self.free("aotc_all_largest")
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
