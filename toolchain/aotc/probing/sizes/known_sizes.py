"""Sizes of free dims that weights determine: channels of images, features of rows.

Exporters leave dims free that the first operator fixes to one size.  The sizes found here are tried
first, and runs decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aotc.contract.manifest.interface import Value

if TYPE_CHECKING:
    import onnx

# The output has the shape of the first input, or that of both inputs broadcast.
_KEEPS_SHAPE: Final = frozenset(
    ("Identity", "Cast", "QuantizeLinear", "DequantizeLinear", "Clip", "Add", "Sub", "Mul", "Div")
)
_CONVOLUTIONS: Final = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
_RECURRENT: Final = frozenset(("RNN", "GRU", "LSTM"))

Axes = tuple[int, ...]
"""Axes of an input, in the order in which they occur in a value computed from it."""


def known_sizes(inputs: Sequence[Value], graph: onnx.GraphProto) -> dict[str, int]:
    """By dim: the size that constant weights in `graph` require of it.

    Found for convolutions (channels), matrix products (features) and recurrent layers, also behind
    operators that keep an input's shape or transpose it.
    """
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in weights:
            weights[node.output[0]] = weights[node.input[0]]
    found: dict[str, int] = {}
    for value in inputs:
        if value.kind != "tensor" or not value.shape:
            continue
        for axis, size in _fixed_axes(value.name, len(value.shape), graph.node, weights):
            dim = value.shape[axis]
            if isinstance(dim, str) and size > 0:
                found.setdefault(dim, size)
    return found


def _fixed_axes(
    name: str, rank: int, nodes: Sequence[onnx.NodeProto], weights: Mapping[str, Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Axes of the input `name`, each with the size that `weights` require."""
    axes_by_value: dict[str, Axes] = {name: tuple(range(rank))}
    for node in nodes:
        source = node.input[0] if node.input else ""
        axes = axes_by_value.get(source)
        if axes is None:
            continue
        if node.op_type in _KEEPS_SHAPE:
            axes_by_value[node.output[0]] = axes
        elif node.op_type == "Transpose":
            perm = next((a.ints for a in node.attribute if a.name == "perm"), None)
            order = list(perm) if perm is not None else list(range(rank))[::-1]
            if sorted(order) == list(range(rank)):
                axes_by_value[node.output[0]] = tuple(axes[position] for position in order)
        else:
            required = _required_size(node, rank, weights)
            if required is not None:
                yield axes[required[0]], required[1]


def _required_size(
    node: onnx.NodeProto, rank: int, weights: Mapping[str, Sequence[int]]
) -> tuple[int, int] | None:
    """The axis of a node's first input that its weights fix, and its size."""
    numbers = {a.name: a.i for a in node.attribute}

    def shape(position: int) -> Sequence[int]:
        return weights.get(node.input[position], ()) if len(node.input) > position else ()

    if node.op_type in _CONVOLUTIONS and rank > 2:
        kernel = shape(_CONVOLUTIONS[node.op_type])
        return (1, kernel[1] * numbers.get("group", 1)) if len(kernel) == rank else None
    if node.op_type in ("MatMul", "MatMulInteger"):
        matrix = shape(1)
        return (rank - 1, matrix[-2]) if len(matrix) > 1 else None
    if node.op_type == "Gemm" and rank == 2:
        matrix = shape(1)
        size = matrix[1 if numbers.get("transB") else 0] if len(matrix) == 2 else 0
        return (0 if numbers.get("transA") else 1, size) if size else None
    if node.op_type in _RECURRENT and rank == 3:
        gates = shape(1)
        return (2, gates[2]) if len(gates) == 3 else None
    return None
