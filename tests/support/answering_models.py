"""Small models whose answers are kept and compared: floats, integers, large and narrow outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OUT = 3


def network(*, seed: int = 1, suffix: str = "", columns: int = OUT) -> onnx.ModelProto:
    """`x [batch, 8]` to scores `y [batch, columns]` and their largest `k [batch, 1]`, int64.

    `suffix` ends the names of nodes.
    """
    drawn = np.random.default_rng(seed)
    shapes = {"w": (8, 16), "v": (16, columns)}
    weights = [
        numpy_helper.from_array(drawn.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name=f"first{suffix}"),
        helper.make_node("Tanh", ["a"], ["t"], name=f"bent{suffix}"),
        helper.make_node("MatMul", ["t", "v"], ["y"], name=f"second{suffix}"),
        helper.make_node("ArgMax", ["y"], ["k"], axis=1, name=f"best{suffix}"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", columns]),
        helper.make_tensor_value_info("k", TensorProto.INT64, ["batch", 1]),
    ]
    graph = helper.make_graph(nodes, "network", inputs, outputs, weights)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def saved(folder: Path, name: str, **how: object) -> Path:
    """A `network` in a file."""
    path = folder / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(network(**how), path)  # type: ignore[arg-type]
    return path
