"""A model whose equal calls have different bytes: threads write one place in any order."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS, WIDTH = 16, 1 << 18
# More threads than cores, so that the last writer changes from call to call.
THREADS = 8


def racing_scatter() -> onnx.ModelProto:
    """ScatterND with equal indices: ONNX leaves open which row wins.

    The rows differ by 1e-6 and less, which every tolerance allows.
    """
    factors = (1 + np.arange(ROWS) * 1e-6).astype(np.float32)[:, None]
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["factors", "x"], ["rows"], name="rows"),
            helper.make_node("ScatterND", ["data", "indices", "rows"], ["found"], name="scatter"),
            helper.make_node("Neg", ["found"], ["y"], name="negate"),
        ],
        "racing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, WIDTH])],
        [
            numpy_helper.from_array(factors, "factors"),
            numpy_helper.from_array(np.zeros((1, WIDTH), np.float32), "data"),
            numpy_helper.from_array(np.zeros((ROWS, 1), np.int64), "indices"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
