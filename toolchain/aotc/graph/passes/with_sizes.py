"""Passes of a variant's graph: stated sizes are written in, and caches are written in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass, all_names, free_name, set_nodes
from aotc.graph.types import inferred
from aotc.graph.view import attribute_of, constant_tensors, every_node, op_of, read_values
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx


# Fix named free dims of the graph inputs to one size.
#
# With static shapes ONNX Runtime folds the nodes that compute shapes.
# Cases: a dim with a name; a dim with neither name nor size, addressed as `INPUT.INDEX`.
# Outputs and inner values with a fixed dim get its size too.


@record
class FixDims(Pass):
    """`sizes`: size by dim name."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    name = "fix-dims"

    def apply(self, model: onnx.ModelProto) -> None:
        for value in model.graph.input:
            for index, dim in enumerate(value.type.tensor_type.shape.dim):
                label = dim.dim_param if dim.dim_param not in ("", "?") else f"{value.name}.{index}"
                fixed = dim.HasField("dim_value") and dim.dim_value >= 0
                if not fixed and label in self.sizes:
                    dim.dim_value = self.sizes[label]
        for value in (*model.graph.output, *model.graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in self.sizes:
                    dim.dim_value = self.sizes[dim.dim_param]

    def ensures(self, model: onnx.ModelProto) -> str:
        left = [
            dim.dim_param
            for value in model.graph.input
            for dim in value.type.tensor_type.shape.dim
            if dim.dim_param in self.sizes
        ]
        return f"still free: {left}" if left else ""


# Replace values computed from a shape by constants if the sizes they need are known.
#
# ONNX Runtime folds a `Shape` whose dims are all known; with a free batch it folds none, although
# most of the sizes used are known.
# Cases: `Shape` of a fully known value; `Gather` (axis 0) and `Slice` (steps of 1) of a `Shape`,
# with
# constant indices that select known dims only.  Main graph only.


Dims = Sequence[int | None]


@record
class FoldShapes(Pass):
    """Fold by the sizes that the graph inputs state; without options."""

    name = "fold-shapes"

    def apply(self, model: onnx.ModelProto) -> None:
        dims = _inferred(model)
        constants = _constants(model)
        shapes: dict[str, Dims] = {}
        for node in model.graph.node:
            if node.domain not in STANDARD:
                continue
            found: Any = None
            if node.op_type == "Shape" and node.input[0] in dims:
                part = _attributes(node)
                known = dims[node.input[0]]
                shapes[node.output[0]] = known[part.get("start", 0) : part.get("end", len(known))]
                found = _all_known(shapes[node.output[0]])
            elif node.op_type == "Gather" and node.input[0] in shapes:
                found = gathered_sizes(shapes[node.input[0]], constants.get(node.input[1]), node)
            elif node.op_type == "Slice" and node.input[0] in shapes:
                read = sliced_sizes(
                    shapes[node.input[0]], [constants.get(n) for n in node.input[1:]]
                )
                if read is not None:
                    shapes[node.output[0]] = read
                    found = _all_known(read)
            if found is not None:
                _become_constant(node, found)
                constants[node.output[0]] = found


def _inferred(model: onnx.ModelProto) -> dict[str, Dims]:
    """Sizes of values as inferred from the graph inputs alone: declared ones may be wrong."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        bare = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    return {
        value.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in shape.dim]
        for value in (*bare.graph.input, *bare.graph.value_info)
        if value.type.tensor_type.HasField("shape")
        for shape in [value.type.tensor_type.shape]
    }


def _constants(model: onnx.ModelProto) -> dict[str, Any]:
    """Small integer constants by name."""
    from onnx import TensorProto, numpy_helper

    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in constant_tensors(model.graph).items()
        if tensor.data_location != TensorProto.EXTERNAL
        and len(tensor.dims) <= 1
        and tensor.data_type in (TensorProto.INT64, TensorProto.INT32)
    }


def _attributes(node: onnx.NodeProto) -> dict[str, int]:
    return {attribute.name: attribute.i for attribute in node.attribute}


def _all_known(dims: Dims) -> Any:
    import numpy as np

    if any(dim is None for dim in dims):
        return None
    return np.array(dims, np.int64)


def gathered_sizes(dims: Dims, indices: Any, node: onnx.NodeProto) -> Any:
    """The sizes that a Gather selects of a shape; None if one of them is unknown."""
    import numpy as np

    if indices is None or _attributes(node).get("axis", 0) not in (0, -1):
        return None
    positions = [int(index) for index in indices.reshape(-1)]
    if not all(-len(dims) <= position < len(dims) for position in positions):
        return None
    sizes = [dims[position] for position in positions]
    return None if None in sizes else np.array(sizes, np.int64).reshape(indices.shape)


def sliced_sizes(dims: Dims, given: Sequence[Any]) -> Dims | None:
    """The part of a shape that a Slice selects; None if its bounds are unknown."""
    if len(given) < 2:
        return None  # Before opset 10 they are attributes.
    starts, ends, *others = given
    if starts is None or ends is None or any(value is None for value in others):
        return None
    if len(starts) != 1 or len(ends) != 1:
        return None
    if len(others) > 1 and int(others[1].reshape(-1)[0]) != 1:
        return None
    return dims[int(starts[0]) : int(ends[0])]


def _become_constant(node: onnx.NodeProto, value: Any) -> None:
    from onnx import helper, numpy_helper

    made = helper.make_node(
        "Constant", [], list(node.output), name=node.name, value=numpy_helper.from_array(value)
    )
    node.CopyFrom(made)


# Write rows of a cache where they are, without turning the cache around them.
#
# torch exports a copy to an index of another axis than the first (`index_copy_` of static caches)
# as Transpose, ScatterND, Transpose: the whole cache is copied three times to write a row.  One
# ScatterElements along that axis writes the same values, and writes them in place where input and
# output have one buffer.
# Cases: the cache is an input of the graph, or a cast of one, that nothing else reads; the indices
# are one axis, made by an Unsqueeze; the updates are a Transpose, which vanishes, or any value,
# which is transposed.


@record
class WriteInPlace(Pass):
    """Without options."""

    name = "write-in-place"

    def has_work(self, model: onnx.ModelProto) -> bool:
        """Whether a cache is turned around a write."""
        return bool(_writes(model))

    def apply(self, model: onnx.ModelProto) -> None:
        # By what they make: a node of protobuf is another object each time.
        writes = {write.scatter.output[0]: write for write in _writes(model)}
        dropped = {write.before.output[0] for write in writes.values()}
        dropped |= {write.after.output[0] for write in writes.values()}
        shapes = _shapes(model)
        used, indices = all_names(model), dict[tuple[str, ...], str]()
        nodes: list[onnx.NodeProto] = []
        for node in model.graph.node:
            made = node.output[0] if node.output else ""
            if made in writes:
                nodes += _written(writes[made], shapes, indices, used)
            elif made not in dropped:
                nodes.append(node)
        read = {name for node in nodes for name in read_values(node)}
        read |= {value.name for value in model.graph.output}
        unread = {name for write in writes.values() for name in write.scatter.input} - read
        set_nodes(model.graph, [node for node in nodes if not unread & set(node.output)])

    def ensures(self, model: onnx.ModelProto) -> str:
        return "a cache is still turned" if self.has_work(model) else ""


class _Write(NamedTuple):
    """The three nodes, the order of axes between them, and the vector of positions.

    `updates` are those in the cache's own order of axes; empty if no node has them.
    """

    before: onnx.NodeProto
    scatter: onnx.NodeProto
    after: onnx.NodeProto
    order: tuple[int, ...]
    positions: str
    updates: str


def _writes(model: onnx.ModelProto) -> list[_Write]:
    graph = model.graph
    made = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in every_node(model):
        for name in read_values(node):
            readers.setdefault(name, []).append(node)
    outputs = {value.name for value in graph.output}
    inputs = {value.name for value in graph.input}
    # Those in half precision at the interface are cast first.
    inputs |= {n.output[0] for n in graph.node if op_of(n) == "Cast" and n.input[0] in inputs}
    shapes: dict[str, Sequence[int | str | None]] | None = None
    found = []
    for node in graph.node:
        if op_of(node) != "ScatterND" or attribute_of(node, "reduction", "none") != "none":
            continue
        before, unsqueezed = made.get(node.input[0]), made.get(node.input[1])
        after = readers.get(node.output[0], [])
        if before is None or unsqueezed is None or len(after) != 1:
            continue
        if node.input[0] in outputs or node.output[0] in outputs:
            continue
        order, back = _order(before), _order(after[0])
        single = before.input[:1] and before.input[0] in inputs
        single = single and len(readers[before.input[0]]) == len(readers[node.input[0]]) == 1
        if not single or not order or not back or op_of(unsqueezed) != "Unsqueeze":
            continue
        if tuple(order[at] for at in back) != tuple(range(len(order))):
            continue
        shapes = shapes if shapes is not None else _shapes(model)
        indices = shapes.get(node.input[1])
        if indices is not None and len(indices) == 2 and indices[1] == 1:
            turned = made.get(node.input[2])
            updates = turned.input[0] if turned is not None and _order(turned) == order else ""
            found.append(_Write(before, node, after[0], order, unsqueezed.input[0], updates))
    return found


def _order(node: onnx.NodeProto) -> tuple[int, ...]:
    """The order of axes of a Transpose that states one; of other nodes none."""
    return tuple(attribute_of(node, "perm", ())) if op_of(node) == "Transpose" else ()


def _shapes(model: onnx.ModelProto) -> dict[str, Sequence[int | str | None]]:
    """Sizes and names of dims, as far as they are inferred; None for what is not known."""
    graph = inferred(model).graph
    return {
        value.name: [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def _written(
    write: _Write,
    shapes: dict[str, Sequence[int | str | None]],
    indices: dict[tuple[str, ...], str],
    used: set[str],
) -> list[onnx.NodeProto]:
    """The nodes that write along the axis that came first between the transposes.

    `indices` are those made before, by the positions and the shape that they have; equal ones are
    made once.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    scatter, axis = write.scatter, write.order[0]
    nodes: list[onnx.NodeProto] = []

    def add(op_type: str, inputs: Sequence[str], into: str = "", **attributes: Any) -> str:
        name = free_name(f"{scatter.name}/{op_type}", used)
        value = into or free_name(f"{name}_value", used)
        nodes.append(helper.make_node(op_type, inputs, [value], name=name, **attributes))
        return value

    back = [write.order.index(at) for at in range(len(write.order))]
    updates = write.updates or add("Transpose", [scatter.input[2]], perm=back)
    sizes = shapes.get(scatter.input[2])
    known = None if sizes is None or None in sizes else tuple(map(repr, sizes))
    key = (write.positions, str(write.order), *(known or (scatter.input[2],)))
    if key not in indices:
        shape = [1] * len(write.order)
        shape[axis] = -1
        form = numpy_helper.from_array(np.array(shape, np.int64))
        rows = add("Reshape", [write.positions, add("Constant", [], value=form)])
        indices[key] = add("Expand", [rows, add("Shape", [updates])])
    add(
        "ScatterElements",
        [write.before.input[0], indices[key], updates],
        write.after.output[0],
        axis=axis,
    )
    return nodes
