"""Scales of channels behind a linear layer, which its weights and bias can have in them.

Image networks multiply what a block adds to its input by a learned number for each channel.
"""

from __future__ import annotations

import onnx_ir as ir

from aotc.graph.passes.base import free_name
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    constant,
    is_constant,
    is_op,
    made_by,
    only_user,
    replace_value,
    set_type,
    sizes,
    whole_array,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes


def fold_layer_scale(graph: ir.Graph) -> dict[str, int]:
    """Multiply the weights and the bias of a linear layer by the scale behind it; returns how many.

    Cases: a product in float32 with weights of two dims, with a bias or without one, which nothing
    else reads.  Weights are multiplied in a node of constants, which ONNX Runtime folds; it has no
    kernel that does so in half precision.
    """
    count, new = 0, NewNodes(graph)
    for node in list(graph):
        for result, scale in (node.inputs, node.inputs[::-1]) if is_op(node, "Mul") else ():
            if result is not None and scale is not None and _fold(graph, node, result, scale, new):
                count += 1
                break
    if count:
        graph.sort()
    return {"linear layer": count} if count else {}


def _fold(graph: ir.Graph, node: ir.Node, result: ir.Value, scale: ir.Value, new: NewNodes) -> bool:
    """Whether the scale of the Mul `node` is in the layer now that makes `result`."""
    added, bias, product = None, None, made_by(result, "MatMul")
    if product is None and (added := made_by(result, "Add")) is not None:
        for source, other in (added.inputs, added.inputs[::-1]):
            found = made_by(source, "MatMul")
            if found is not None and constant(other) is not None:
                product, bias = found, other
    width = sizes(scale, 1)
    if product is None or width is None or constant(scale) is None:
        return False
    weights, made = product.inputs[1], [product.outputs[0], *([result] if bias else [])]
    if weights is None or weights.dtype != ir.DataType.FLOAT or not is_constant(weights):
        return False
    if not _is_read_once(weights) or any(only_user(value) is None for value in made):
        return False
    if (sizes(weights, 2) or ("",))[-1:] != width or (bias is not None and sizes(bias, 1) != width):
        return False
    scaled = new.node("Mul", [weights, scale]).outputs[0]
    set_type(scaled, weights)
    scaled.shape = weights.shape
    product.replace_input_with(1, scaled)
    new.place_before(product)
    if bias is not None and added is not None:
        held = ir.tensor(whole_array(bias) * whole_array(scale))
        name = free_name(f"{bias.name}_scaled", set(graph.initializers))
        own = ir.Value(name=name, const_value=held, shape=bias.shape, type=bias.type)
        graph.register_initializer(own)
        added.replace_input_with([*added.inputs].index(bias), own)
    _rename(node.outputs[0], made)
    replace_value(node.outputs[0], result)
    return True


def _is_read_once(value: ir.Value) -> bool:
    """Whether a constant, and what it is made of, has one reader: else it would be stored twice."""
    if len(value.uses()) != 1:
        return False
    maker = value.producer()
    return maker is None or maker.inputs[0] is None or _is_read_once(maker.inputs[0])


def _rename(old: ir.Value, made: list[ir.Value]) -> None:
    """Values that have other numbers now lose their names: the last of `made` is what `old` was.

    So it is known what stands for what.
    """
    for value in made:
        value.name = f"{value.name}_scaled"
    if old.name and not old.is_graph_output():
        old.name, made[-1].name = f"{old.name}_unfolded", old.name
