"""Counting nodes that only compute shapes, on small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import node
from onnx import NodeProto, TensorProto, helper, numpy_helper

from aotc.graph.view import shape_nodes


def count(*nodes: NodeProto, output: str = "y", **initializers: Any) -> int:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return len(shape_nodes(model))


def subgraph(*nodes: NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph(
        list(nodes), "body", [], [helper.make_tensor_value_info(output, TensorProto.INT64, None)]
    )


def constant(output: str, value: int) -> NodeProto:
    return node("Constant", "", output, value=numpy_helper.from_array(np.array([value])))


def test_none_where_no_shape_is_asked_for() -> None:
    assert count(node("Relu", "x", "a"), node("Add", "a one", "y"), one=np.float32(1)) == 0


@pytest.mark.parametrize("source", ["Shape", "Size"])
def test_a_source_alone_counts(source: str) -> None:
    assert count(node(source, "x", "y")) == 1


def test_what_reads_shapes_and_constants_alone_counts() -> None:
    """As an exporter reshapes: the shape, one of its sizes, a list of it, the reshape."""
    assert (
        count(
            node("Shape", "x", "shape"),
            constant("zero", 0),
            node("Gather", "shape zero", "rows"),
            node("Concat", "rows rest", "wanted", axis=0),
            node("Reshape", "x wanted", "y"),
            rest=np.array([-1]),
        )
        == 3
    )


def test_the_node_that_mixes_shapes_and_values_does_not_count_nor_what_follows() -> None:
    assert (
        count(
            node("Shape", "x", "shape"),
            node("Cast", "shape", "sizes", to=TensorProto.FLOAT),
            node("ReduceSum", "x", "sum", keepdims=0),
            node("Mul", "sum sizes", "scaled"),
            node("Neg", "scaled", "y"),
        )
        == 2
    )


def test_the_shape_of_a_shape_counts() -> None:
    assert count(node("Shape", "x", "shape"), node("Shape", "shape", "y")) == 2


def test_folded_constants_do_not_count() -> None:
    assert count(constant("a", 1), constant("b", 2), node("Add", "a b", "y")) == 0


def test_left_out_inputs_are_passed_over() -> None:
    clip = helper.make_node("Clip", ["shape", "", "most"], ["y"])
    assert count(node("Shape", "x", "shape"), clip, most=np.array(9)) == 2


def test_random_values_are_no_shapes() -> None:
    assert count(node("RandomNormal", "", "noise", shape=[2]), node("Neg", "noise", "y")) == 0


def test_a_node_with_a_body_does_not_count() -> None:
    """Its body may read anything outside of it."""
    inner = subgraph(node("Size", "x", "inner"), output="inner")
    other = subgraph(node("Identity", "size", "other"), output="other")
    assert (
        count(
            node("Size", "x", "size"),
            node("Greater", "size three", "large"),
            node("If", "large", "chosen", then_branch=inner, else_branch=other),
            node("Neg", "chosen", "y"),
            three=np.array(3),
        )
        == 2
    )
