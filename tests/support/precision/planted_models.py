"""Models with one planted node that a lower precision cannot hold; float32 answers stay exact.

What a product reads is multiplied, channel by channel, by powers of two, and the rows of its
weights are divided by them: in float32 no bit of the product changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper


def residual_network(layers: int, width: int, *, scale: float = 0.1) -> onnx.ModelProto:
    """`layers` products with an activation and a sum each: x, y of [n, width], values of one size.

    Nodes are named `product 0`, `activation 0`, `sum 0` and so on.
    """
    chance = np.random.default_rng(20261123)
    nodes, weights, value = [], [], "x"
    for index in range(layers):
        weight = chance.standard_normal((width, width)).astype(np.float32) * np.float32(scale)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        nodes += [
            helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"], f"product {index}"),
            helper.make_node("Tanh", [f"m{index}"], [f"t{index}"], f"activation {index}"),
            helper.make_node("Add", [f"t{index}", value], [f"r{index}"], f"sum {index}"),
        ]
        value = f"r{index}"
    nodes.append(helper.make_node("Identity", [value], ["y"], "answer"))
    shape = ["n", width]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers=weights,
    )


def products(model: onnx.ModelProto) -> list[str]:
    """The names of nodes that can be planted: products with constant weights, in order."""
    weights = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights
    ]


def with_outliers(
    model: onnx.ModelProto, name: str, *, channels: int = 1, factor: float = 2.0**10
) -> onnx.ModelProto:
    """A copy in which some input channels of one product are `factor` times as large.

    8 bits with one scale for all channels hold the large ones alone, so int8 is wrong there.
    """
    width = _width(model, name)
    scales = np.ones(width, np.float32)
    scales[np.linspace(0, width - 1, channels, dtype=int)] = factor
    return _planted(model, name, scales)


def with_overflow(model: onnx.ModelProto, name: str, *, factor: float = 2.0**20) -> onnx.ModelProto:
    """A copy in which one product reads numbers beyond 65504, the largest of float16."""
    return _planted(model, name, np.full(_width(model, name), factor, np.float32))


def _node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    (found,) = (node for node in model.graph.node if node.name == name)
    return found


def _is_transposed(node: onnx.NodeProto) -> bool:
    return any(each.name == "transB" and each.i for each in node.attribute)


def _width(model: onnx.ModelProto, name: str) -> int:
    """How many channels a product reads."""
    node = _node(model, name)
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == node.input[1])
    return int(weight.dims[1 if _is_transposed(node) else 0])


def _planted(model: onnx.ModelProto, name: str, scales: np.ndarray[Any, Any]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    node = _node(made, name)
    (weight,) = (tensor for tensor in made.graph.initializer if tensor.name == node.input[1])
    values = numpy_helper.to_array(weight)
    divided = values / (scales[None, :] if _is_transposed(node) else scales[:, None])
    scale, product = f"{name}.planted.scales", f"{name}.planted"
    made.graph.initializer.append(
        numpy_helper.from_array(divided.astype(values.dtype), f"{name}.planted.weight")
    )
    made.graph.initializer.append(numpy_helper.from_array(scales, scale))
    multiplied = helper.make_node("Mul", [node.input[0], scale], [product], product)
    node.input[0], node.input[1] = product, f"{name}.planted.weight"
    nodes = list(made.graph.node)
    place = next(index for index, each in enumerate(nodes) if each.name == name)
    del made.graph.node[:]
    made.graph.node.extend([*nodes[:place], multiplied, *nodes[place:]])
    read = {each for one in made.graph.node for each in one.input}
    kept = [tensor for tensor in made.graph.initializer if tensor.name in read]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    return made
