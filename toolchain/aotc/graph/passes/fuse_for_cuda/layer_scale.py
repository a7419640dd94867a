"""Scales of channels behind a linear layer, which its weights and bias can have in them.

Image networks multiply what a block adds to its input by a learned number for each channel.
"""

from __future__ import annotations

import onnx_ir as ir

from aotc.graph.passes.fuse_for_cuda.graph_values import (
    is_constant,
    is_op,
    made_by,
    only_user,
    replace_value,
    set_type,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes


def fold_layer_scale(graph: ir.Graph) -> dict[str, int]:
    """Multiply the weights and the bias of a linear layer by the scale behind it; returns how many.

    Cases: a product with weights of two dims, with a bias or without one, which nothing else reads.
    What is multiplied are constants, so that ONNX Runtime stores the result.
    """
    count, new = 0, NewNodes(graph)
    for node in list(graph):
        for result, scale in (node.inputs, node.inputs[::-1]) if is_op(node, "Mul") else ():
            if result is not None and scale is not None and _folded(node, result, scale, new):
                count += 1
                break
    return {"linear layer": count} if count else {}


def _folded(node: ir.Node, result: ir.Value, scale: ir.Value, new: NewNodes) -> bool:
    """Whether the scale that the Mul `node` has is in the layer now that makes `result`."""
    width = sizes(scale, 1)
    added, bias = made_by(result, "Add"), None
    product = made_by(result, "MatMul")
    for source, other in (added.inputs, added.inputs[::-1]) if added is not None else ():
        if made_by(source, "MatMul") is not None and is_constant(other):
            product, bias = made_by(source, "MatMul"), other
    if width is None or not is_constant(scale) or product is None:
        return False
    weights, users = product.inputs[1], [product.outputs[0], *([result] if bias else [])]
    if any(only_user(value) is None for value in users) or not is_constant(weights):
        return False
    if (sizes(weights, 2) or ("",))[-1:] != width or (bias is not None and sizes(bias, 1) != width):
        return False
    assert weights is not None
    product.replace_input_with(1, _scaled(weights, scale, new))
    new.place_before(product)
    if bias is not None and added is not None:
        added.replace_input_with([*added.inputs].index(bias), _scaled(bias, scale, new))
        new.place_before(added)
    replace_value(node.outputs[0], result)
    return True


def _scaled(value: ir.Value, scale: ir.Value, new: NewNodes) -> ir.Value:
    made = new.node("Mul", [value, scale]).outputs[0]
    set_type(made, value)
    made.shape = value.shape
    return made
