"""Nodes that a fusion makes, in order, before they are put into the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from aotc.graph.passes.fuse_for_cuda.graph_values import set_type

# Since then Split has the sizes of its parts as an input.
_PARTS_ARE_INPUT_SINCE = 13
# Since then Shape may be of some axes only.
_PART_OF_SHAPE_SINCE = 15


class NewNodes:
    """Nodes of one replacement; a value made before stays usable once its nodes are placed."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: list[ir.Node] = []

    def place_before(self, node: ir.Node) -> None:
        """Put what was made into the graph."""
        self._graph.insert_before(node, self._made)
        self._made = []

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, object] | None = None,
        outputs: int = 1,
        domain: str = "",
    ) -> ir.Node:
        """A node with plain attributes; its outputs have neither type nor shape yet."""
        stated = [ir.convenience.convert_attribute(k, v) for k, v in (attributes or {}).items()]  # type: ignore[arg-type]
        node = ir.Node(domain, op_type, inputs, stated, num_outputs=outputs)
        self._made.append(node)
        return node

    def alike(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value:
        """The one output of the same operator, with the same attributes, on other inputs."""
        made = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()))
        self._made.append(made)
        set_type(made.outputs[0], node.outputs[0])
        return made.outputs[0]

    def reshaped(
        self, value: ir.Value, numbers: list[int], sizes: Sequence[int | str] | None = None
    ) -> ir.Value:
        """`value` as a Reshape by `numbers` makes it: 0 keeps a size, -1 is what is left.

        `sizes` are those of the result, "" for one that is not known.
        """
        result = self.node("Reshape", [value, self.numbers(numbers)]).outputs[0]
        set_type(result, value)
        if sizes is not None:
            result.shape = ir.Shape([size or None if size != 0 else 0 for size in sizes])
        return result

    def transposed(
        self, value: ir.Value, perm: Sequence[int], sizes: Sequence[int | str] | None = None
    ) -> ir.Value:
        """`value` with its axes in another order; `sizes` are those of the result."""
        result = self.node("Transpose", [value], {"perm": list(perm)}).outputs[0]
        set_type(result, value)
        if sizes is not None:
            result.shape = ir.Shape([size or None if size != 0 else 0 for size in sizes])
        return result

    def split(self, value: ir.Value, axis: int, parts: list[int]) -> ir.Node:
        """A Split into parts of these sizes along an axis."""
        if self._graph.opset_imports.get("", 1) < _PARTS_ARE_INPUT_SINCE:
            return self.node("Split", [value], {"axis": axis, "split": parts}, len(parts))
        return self.node("Split", [value, self.numbers(parts)], {"axis": axis}, len(parts))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of one axis, of one dim."""
        if self._graph.opset_imports.get("", 1) >= _PART_OF_SHAPE_SINCE:
            return self.node("Shape", [value], {"start": axis, "end": axis + 1}).outputs[0]
        shape = self.node("Shape", [value]).outputs[0]
        return self.node("Gather", [shape, self.numbers([axis])]).outputs[0]

    def numbers(self, values: list[int]) -> ir.Value:
        """A constant of int64, of one dim."""
        return self.constant(ir.tensor(values, dtype=ir.DataType.INT64))

    def number(self, value: float, dtype: ir.DataType) -> ir.Value:
        """A constant without dims."""
        return self.constant(ir.tensor(value, dtype=dtype))

    def constant(self, tensor: ir.TensorProtocol) -> ir.Value:
        """A constant."""
        node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)])
        self._made.append(node)
        node.outputs[0].dtype = tensor.dtype
        return node.outputs[0]
