"""Nodes of rewritten graphs that make no value of the source are known by their names."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from aotc.graphs.source_nodes import covered_nodes


def test_a_product_that_onnxruntime_fuses_stands_for_the_product() -> None:
    """Of three dims it becomes a Reshape, a Gemm and a Reshape, and only the last keeps a name."""
    weights = [
        numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
        numpy_helper.from_array(np.ones(4, np.float32), "b"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4]) for name in ("x", "y")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["y"], "sum"),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    written = _optimized(model, options)
    (gemm,) = (node for node in written.graph.node if node.op_type == "Gemm")
    found = covered_nodes(graph, written.graph)
    assert found[gemm.name] == ("product",)


def _optimized(model: onnx.ModelProto, options: ort.SessionOptions) -> onnx.ModelProto:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "fused.onnx"
        options.optimized_model_filepath = str(place)
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(place)
