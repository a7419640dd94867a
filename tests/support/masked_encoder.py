"""A small encoder with a masked mean, whose answers show every padded element that counts."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, WORDS = 8, 50


def encoder() -> onnx.ModelProto:
    """Embeddings, a masked mean over the sequence added to each position: [batch, seq, 8]."""
    rng = np.random.default_rng(0)
    tables = {
        "table": rng.normal(size=(WORDS, WIDTH)).astype(np.float32),
        "dense": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "axes": np.array([2], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("Unsqueeze", ["mask", "axes"], ["wide"]),
        helper.make_node("Mul", ["words", "wide"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "one"], ["total"], keepdims=1),
        helper.make_node("MatMul", ["masked", "dense"], ["product"]),
        helper.make_node("Add", ["product", "total"], ["hidden"]),
    ]
    tables["one"] = np.array([1], np.int64)
    graph = helper.make_graph(
        nodes,
        "encoder",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "seq"]),
        ],
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "seq", WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in tables.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
