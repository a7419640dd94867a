"""The cost of each node at one shape: floating-point operations and bytes, from inferred sizes.

Formulas: a convolution, matrix product or recurrence has two operations per multiply-add; any other
node has one operation per output element.  Bytes are those of all inputs, weights included, and
outputs.  Control-flow nodes cost nothing themselves; the nodes of their subgraphs do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from aotc.partitioning.graph import subgraphs_of
from aotc.partitioning.scopes import Scope, Shape, scopes
from aotc.records import record

if TYPE_CHECKING:
    import onnx


@record(kw_only=False)
class NodeCompute:
    """Operations and bytes of one run of a node; `known` is false if an output size is unknown."""

    flops: int
    bytes: int
    known: bool = True


@record(kw_only=False)
class Sizes:
    """The compute of every node and the bytes of every value, by name, at one shape.

    Both include subgraphs; if several subgraphs use one name for values of their own, the largest
    counts.  `shapes` are those of the main graph's values.
    """

    nodes: Mapping[str, NodeCompute]
    values: Mapping[str, int]
    shapes: Mapping[str, Shape]


def sizes_at(model: onnx.ModelProto, dims: Mapping[str, int], *, stated: bool = False) -> Sizes:
    """Costs of `model` with the named dims of its inputs at the sizes `dims`.

    External data is not read.  A node or value whose shape ONNX's inference does not find stays
    unknown; with `stated`, the shapes that `model` declares are used instead.

    A subgraph counts as one iteration, that of a loop as the first one; of an `If`, both branches
    count.
    """
    main, *subgraphs = scopes(model, dims, stated=stated)
    nodes = {node.name: _cost(node, main) for node in main.nodes}
    values = _sizes(main)
    inner: dict[str, int] = {}
    for subgraph in subgraphs:
        nodes |= {node.name: _cost(node, subgraph) for node in subgraph.nodes}
        for name, size in _sizes(subgraph).items():
            inner[name] = max(size, inner.get(name, 0))
    return Sizes(nodes=nodes, values={**inner, **values}, shapes=main.own)


def _cost(node: onnx.NodeProto, scope: Scope) -> NodeCompute:
    shapes = scope.shapes
    outputs = [shapes.get(name) for name in node.output if name]
    known = all(shape is not None for shape in outputs)
    if any(subgraphs_of(attribute) for attribute in node.attribute):
        return NodeCompute(0, 0, known)
    inputs = [shapes.get(name) if name else None for name in node.input]
    values = [name for name in (*node.input, *node.output) if name]
    moved = sum(_bytes(scope, name) or 0 for name in values)
    made = [shape for shape in outputs if shape is not None]
    return NodeCompute(flops_of(node.op_type, inputs, made), moved, known)


def _sizes(scope: Scope) -> dict[str, int]:
    found = {name: _bytes(scope, name) for name in scope.own}
    return {name: size for name, size in found.items() if size is not None}


def flops_of(op: str, inputs: Sequence[Shape | None], outputs: Sequence[Shape]) -> int:
    """Floating-point operations of one run of an operator, from the shapes of its tensors.

    `inputs` has None for an unknown shape or an absent optional input.
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
        # The first matrix may be transposed: divide its elements by the rows of the product.
        return 2 * elements * (math.prod(first) // max(outputs[0][0], 1)) if outputs else 0
    if ("MatMul" in op or "Gemm" in op or "Attention" in op) and first:
        return 2 * elements * max(first[-1], 1)
    if op in ("LSTM", "GRU", "RNN") and first and second and len(inputs) > 2 and inputs[2]:
        steps = math.prod(first[:2])
        return 2 * steps * (math.prod(second) + math.prod(inputs[2]))
    return elements


def _bytes(scope: Scope, name: str) -> int | None:
    shape = scope.shapes.get(name)
    if shape is None:
        return None
    return math.ceil(math.prod(shape) * width_of(scope.types.get(name, 0)))


@cache
def width_of(kind: int) -> float:
    """Bytes per element of an ONNX element type; 1 for strings."""
    import onnx

    name = onnx.TensorProto.DataType.Name(kind)
    if name in ("STRING", "UNDEFINED"):
        return 1.0
    if name in ("INT4", "UINT4", "FLOAT4E2M1"):
        return 0.5
    if name in ("INT2", "UINT2"):
        return 0.25
    return float(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
