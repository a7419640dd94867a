"""Passes of a graph whose sizes are stated: they are written in, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass
from aotc.graph.view import constant_tensors
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
