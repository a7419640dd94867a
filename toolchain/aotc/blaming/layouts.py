"""Layouts of images in which ONNX Runtime's CPU kernels have values, other than the model's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import onnx

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
