"""What each node costs at one shape: floating-point operations and bytes, from inferred sizes.

Formulas: a convolution, matrix product or recurrence counts two operations a multiply-add; any
other node counts one operation an output element.  Bytes are those of all its inputs, weights
included, and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeCompute:
    """Operations and bytes of one run of a node; `known` is false where a size is not."""

    flops: int
    bytes: int
    known: bool = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """Compute of every node of the main graph, by name, and bytes of every value; at one shape."""

    nodes: Mapping[str, NodeCompute]
    values: Mapping[str, int]
    shapes: Mapping[str, Shape]


def sizes_at(model: onnx.ModelProto, dims: Mapping[str, int], *, stated: bool = False) -> Sizes:
    """Costs with the named dims of `model`'s inputs at `dims`.

    `model` may have external data, which is not read.  Shapes that ONNX's inference does not find
    leave a node or a value unknown; with `stated`, those that `model` declares are taken instead.
    """
    shapes, widths = _read(model) if stated else _inferred(model, dims)
    nodes = {}
    for node in model.graph.node:
        inputs = [shapes.get(name) if name else None for name in node.input]
        outputs = [shapes.get(name) for name in node.output if name]
        values = [name for name in (*node.input, *node.output) if name]
        moved = sum(_bytes(shapes, widths, name) or 0 for name in values)
        known = all(shape is not None for shape in outputs)
        made = [shape for shape in outputs if shape is not None]
        nodes[node.name] = NodeCompute(flops_of(node.op_type, inputs, made), moved, known)
    values_bytes = {name: _bytes(shapes, widths, name) for name in shapes}
    return Sizes(
        nodes=nodes,
        values={name: size for name, size in values_bytes.items() if size is not None},
        shapes=shapes,
    )


def flops_of(op: str, inputs: Sequence[Shape | None], outputs: Sequence[Shape]) -> int:
    """Floating-point operations of one run of an operator, from the sizes of its tensors.

    `inputs` has None where a size is unknown or an optional input is absent.
    """
    elements = sum(math.prod(shape) for shape in outputs)
    first = inputs[0] if inputs else None
    weights = 3 if op == "QLinearConv" else 1
    second = inputs[weights] if len(inputs) > weights else None
    if "ConvTranspose" in op and second and first:
        return 2 * math.prod(first) * math.prod(second[1:])
    if "Conv" in op and second:
        return 2 * elements * math.prod(second[1:])
    if op == "Gemm" and first:
        # The first matrix may be transposed: its elements over the rows of the product.
        return 2 * elements * (math.prod(first) // max(outputs[0][0], 1)) if outputs else 0
    if ("MatMul" in op or "Gemm" in op or "Attention" in op) and first:
        return 2 * elements * max(first[-1], 1)
    if op in ("LSTM", "GRU", "RNN") and first and second and len(inputs) > 2 and inputs[2]:
        steps = math.prod(first[:2])
        return 2 * steps * (math.prod(second) + math.prod(inputs[2]))
    return elements


def _bytes(shapes: Mapping[str, Shape], widths: Mapping[str, float], name: str) -> int | None:
    shape = shapes.get(name)
    return None if shape is None else math.ceil(math.prod(shape) * widths.get(name, 1))


def _inferred(
    model: onnx.ModelProto, dims: Mapping[str, int]
) -> tuple[dict[str, Shape], dict[str, float]]:
    """Known shapes and bytes an element, of all values of the main graph."""
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.value_info[:]
    for value in fixed.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    for value in fixed.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    # Where it fails, only what is declared is known.
    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        fixed = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
    return _read(fixed)


def _read(fixed: onnx.ModelProto) -> tuple[dict[str, Shape], dict[str, float]]:
    shapes: dict[str, Shape] = {}
    widths: dict[str, float] = {}
    for value in (*fixed.graph.input, *fixed.graph.value_info, *fixed.graph.output):
        tensor = value.type.tensor_type
        if tensor.elem_type:
            widths[value.name] = width_of(tensor.elem_type)
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
    for initializer in fixed.graph.initializer:
        shapes[initializer.name] = tuple(initializer.dims)
        widths[initializer.name] = width_of(initializer.data_type)
    return shapes, widths


def width_of(kind: int) -> float:
    """Bytes of one element of an ONNX element type; text counts one."""
    import onnx

    name = onnx.TensorProto.DataType.Name(kind)
    if name in ("STRING", "UNDEFINED"):
        return 1.0
    if name in ("INT4", "UINT4", "FLOAT4E2M1"):
        return 0.5
    if name in ("INT2", "UINT2"):
        return 0.25
    return float(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
