"""Which of the chosen nodes a quantized graph shows to be quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.passes.base import walk_nodes
from aotc.passes.quantize import Chosen

if TYPE_CHECKING:
    import onnx

_DYNAMIC: Final = frozenset({"MatMulInteger", "DynamicQuantizeLSTM"})


def written_nodes(model: onnx.ModelProto, chosen: Chosen) -> Chosen:
    """The `chosen` nodes that were quantized: the tools pass over some, and say nothing.

    A node of the static form reads or makes what is quantized, or is part of another and gone.
    """
    left = {node.name: node for node in walk_nodes(model)}
    quantized = {
        name
        for node in model.graph.node
        for name in (node.input[:1] if node.op_type == "QuantizeLinear" else node.output)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }
    blocks = {name for name, node in left.items() if node.op_type == "MatMulNBits"}
    static = {
        name
        for name in chosen.static
        if name not in left or quantized.intersection((*left[name].input, *left[name].output))
    }
    return Chosen(
        frozenset(static),
        frozenset(n for n in chosen.dynamic if n in left and left[n].op_type in _DYNAMIC),
        frozenset(n for n in chosen.weights if blocks & {f"{n}_Q4", f"{n}_Q8"}),
        frozenset(n for n in chosen.tables if f"{n}_scaled" in left),
    )
