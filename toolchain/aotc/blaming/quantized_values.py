"""Scales and zero points of quantized values inside a graph, where all elements share one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx

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
    single = {tensor.name for tensor in graph.initializer if _elements(tensor) == 1}
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


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count
