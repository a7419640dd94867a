"""Stand-ins for ONNX Runtime's fused operators, so that ONNX's shape inference goes through them.

ONNX infers no shape of an operator of another domain, and of nothing after it.  In a copy that is
only inferred, such a node is replaced by one of ONNX's own whose outputs have the same shapes and
types: a fused product by the product, what works element by element by Identity.  What has no
stand-in stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.contract.operator_domains import STANDARD

if TYPE_CHECKING:
    import onnx

# By operator: the one of ONNX that stands in, and which inputs it takes; () are all.
_STAND_INS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    **dict.fromkeys(
        (
            *("Attention", "MultiHeadAttention", "QAttention", "GroupQueryAttention"),
            *("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "BiasSoftmax", "SkipLayerNormalization"),
            *("SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization", "BiasAdd"),
            *(
                "LayerNormalization",
                "QLinearLeakyRelu",
                "QLinearSigmoid",
                "QLinearSoftmax",
                "RotaryEmbedding",
            ),
            *("ReorderInput", "GroupNorm", "SkipGroupNorm"),
        ),
        ("Identity", (0,)),
    ),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ("Add", (0, 3))),
    "FusedConv": ("Conv", ()),
    "FusedGemm": ("Gemm", ()),
    "FusedMatMul": ("MatMul", (0, 1)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "Conv": ("Conv", (0, 1)),
    "MaxPool": ("MaxPool", (0,)),
    "AveragePool": ("AveragePool", (0,)),
    "GlobalAveragePool": ("GlobalAveragePool", (0,)),
    "GlobalMaxPool": ("GlobalMaxPool", (0,)),
    "Upsample": ("Upsample", (0,)),
}
_UNDATED: Final = ("LayerNormalization", "SimplifiedLayerNormalization")
_DOMAINS: Final = ("com.microsoft", "com.microsoft.nchwc")
# From this opset on, Slice takes its bounds as inputs.
_SLICE_INPUTS: Final = 10
# Attributes that the operators of ONNX have too; the others would make them invalid.
_KEPT: Final = frozenset(
    (
        *("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode"),
        *("storage_order", "count_include_pad", "alpha", "beta", "transA", "transB"),
    )
)


def with_stand_ins(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for shape inference alone; its nodes have the same names and outputs."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    sums: list[onnx.NodeProto] = []
    for node in copied.graph.node:
        # ONNX Runtime writes these without a domain into models of any opset.
        if node.domain not in _DOMAINS and node.op_type not in _UNDATED:
            continue
        if node.op_type == "ReorderOutput":
            _cut_channels(node, copied)
            continue
        op, taken = _STAND_INS.get(node.op_type, ("", ()))
        if not op or any(index >= len(node.input) for index in taken):
            continue
        transposed = {a.name for a in node.attribute if a.name.startswith("trans") and (a.i or a.f)}
        if op == "MatMul" and transposed:
            continue  # Its product has other sizes than that of the inputs as they are.
        inputs = [node.input[index] for index in taken] or list(node.input)
        kept = [a for a in node.attribute if a.name in _KEPT and op != "Identity"]
        del node.attribute[:]
        node.attribute.extend(kept)
        if "Skip" in node.op_type and len(node.output) > 3 and node.output[3]:
            # What is normalized, for the next node to add to.
            sums.append(onnx.helper.make_node("Identity", [node.input[0]], [node.output[3]]))
        node.op_type, node.domain = op, ""
        node.input[:] = inputs
        if op == "Conv":
            node.input[:] = inputs[:3]
        del node.output[1:]
    nodes = list(copied.graph.node)
    made = {node.input[0]: node for node in sums}
    del copied.graph.node[:]
    # Each behind the node that it reads from, as inference follows the order of nodes.
    copied.graph.node.extend(made[value] for value in _given(copied) & made.keys())
    for node in nodes:
        copied.graph.node.append(node)
        copied.graph.node.extend(made[value] for value in node.output if value in made)
    return copied


def _cut_channels(node: onnx.NodeProto, model: onnx.ModelProto) -> None:
    """Blocked channels are rounded up; behind them the graph has as many as it had."""
    import numpy as np
    from onnx import helper, numpy_helper

    stated = {attribute.name: attribute.i for attribute in node.attribute}
    channels = stated.get("channels", 0)
    if channels <= 0 or stated.get("channels_last"):
        return
    bounds = {"starts": [0], "ends": [channels], "axes": [1]}
    names = [node.input[0]]
    opset = max((o.version for o in model.opset_import if o.domain in STANDARD), default=1)
    if opset >= _SLICE_INPUTS:
        for name, value in bounds.items():
            names.append(f"{node.output[0]}/{name}")
            tensor = numpy_helper.from_array(np.array(value, np.int64), names[-1])
            model.graph.initializer.append(tensor)
        bounds = {}
    node.CopyFrom(helper.make_node("Slice", names, list(node.output), name=node.name))
    node.attribute.extend(helper.make_attribute(name, value) for name, value in bounds.items())


def _given(model: onnx.ModelProto) -> set[str]:
    return {value.name for value in model.graph.input}
