"""Two convolutions with a Relu, and the same as ONNX Runtime quantizes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


def images() -> onnx.ModelProto:
    """Images of 3 channels, 4 by 4, to 5 numbers each."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / 5, name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
            helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["c2", "r1"], ["a"], name="add"),
            helper.make_node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2, 2]),
            helper.make_node("Flatten", ["p"], ["f"], name="flat"),
            helper.make_node("Gemm", ["f", "w3"], ["y"], name="fc"),
        ],
        "images",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [weight("w1", 8, 3, 3, 3), weight("w2", 8, 8, 3, 3), weight("w3", 72, 5)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    """A few images."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.left = [random.standard_normal((2, 3, 4, 4)).astype(np.float32) for _ in "abcd"]

    def get_next(self) -> dict[str, Any] | None:
        """The next sample."""
        return {"x": self.left.pop()} if self.left else None


def quantized(source: Path, target: Path) -> onnx.ModelProto:
    """`source` in 8 bits, in integers of one sign, whose products no CPU saturates."""
    quantize_static(
        str(source),
        str(target),
        _Samples(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QUInt8,
    )
    return onnx.load(target)
