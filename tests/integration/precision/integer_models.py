"""Small quantized models whose sums saturate on CPUs without VNNI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, COLUMNS = 256, 16
# The features of an AMD EPYC with AVX2 but without VNNI.
PLAIN_ISA = "sse4_1 sse4_2 avx avx2 fma f16c"


def weights(largest: int = 127) -> Any:
    """Such that sums of two products with large activations exceed 16 bits."""
    found = np.random.default_rng(0).integers(-largest - 1, largest + 1, (WIDTH, COLUMNS))
    found[:, 0] = largest
    return found.astype(np.int8)


def model(nodes: list[onnx.NodeProto], constants: Mapping[str, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", COLUMNS])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dynamic(largest: int = 127, *, unsigned: bool = False) -> onnx.ModelProto:
    """As dynamic quantization writes it: the model contains the integer product.

    With `unsigned`, weights have the type of the activations.
    """
    if unsigned:
        values = (weights(largest).astype(np.int16) + 128).astype(np.uint8)
        zero = {"wz": np.uint8(128)}
    else:
        values, zero = weights(largest), {}
    return model(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            helper.make_node("MatMulInteger", ["q", "w", "z", *zero], ["i"]),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["s", "ws"], ["both"]),
            helper.make_node("Mul", ["f", "both"], ["y"]),
        ],
        {"w": values, "ws": np.float32(0.01), **zero},
    )


def static() -> onnx.ModelProto:
    """As static quantization writes it: ONNX Runtime's optimizer makes the product."""
    return model(
        [
            helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
            helper.make_node("MatMul", ["d", "v"], ["m"]),
            helper.make_node("QuantizeLinear", ["m", "ys", "yz"], ["o"]),
            helper.make_node("DequantizeLinear", ["o", "ys", "yz"], ["y"]),
        ],
        {
            "w": weights(),
            "xs": np.float32(0.02),
            "xz": np.uint8(128),
            "ws": np.float32(0.01),
            "wz": np.int8(0),
            "ys": np.float32(0.5),
            "yz": np.uint8(128),
        },
    )


def activations_product() -> onnx.ModelProto:
    """A product of two inputs of opposite sign: no weights to write otherwise."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMulInteger", ["a", "b"], ["i"], name="product"),
            helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        "activations",
        [
            helper.make_tensor_value_info("a", TensorProto.UINT8, [4, WIDTH]),
            helper.make_tensor_value_info("b", TensorProto.INT8, [WIDTH, 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
