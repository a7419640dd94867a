from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.partition.assignment import sizes_at
from aotc.report.html.graph_data import with_known_values, with_standard_operators

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]


def model(nodes: list[onnx.NodeProto], **constants: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), name) for name, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=OPSETS)


def shapes(found: onnx.ModelProto, size: int) -> dict[str, tuple[int, ...]]:
    return dict(sizes_at(with_known_values(with_standard_operators(found), {"n": size}), {}).shapes)


def test_a_shape_that_the_graph_computes() -> None:
    graph = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n0"]),
            helper.make_node("Slice", ["table", "zero", "n0"], ["part"]),
            helper.make_node("Cast", ["part"], ["y"], to=TensorProto.FLOAT),
        ],
        zero=[0],
        table=list(range(9)),
    )
    assert shapes(graph, 3)["y"] == (3,)
    # Without, inference does not find it.
    assert "y" not in sizes_at(graph, {"n": 3}).shapes


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("FastGelu", ["x"], (5, 4)),
        ("QuickGelu", ["x"], (5, 4)),
        ("FusedMatMul", ["x", "w"], (5, 7)),
        ("SkipLayerNormalization", ["x", "x", "g"], (5, 4)),
    ],
)
def test_fused_operators(op: str, inputs: list[str], expected: tuple[int, ...]) -> None:
    node = helper.make_node(op, inputs, ["f"], domain="com.microsoft")
    graph = model([node, helper.make_node("Relu", ["f"], ["y"])])
    graph.graph.initializer.extend(
        [
            numpy_helper.from_array(np.zeros((4, 7), np.float32), "w"),
            numpy_helper.from_array(np.zeros(4, np.float32), "g"),
        ]
    )
    before = graph.SerializeToString()
    assert shapes(graph, 5)["y"] == expected
    assert graph.SerializeToString() == before


def test_the_sum_that_a_skip_hands_on() -> None:
    node = helper.make_node(
        "SkipLayerNormalization", ["x", "x", "g"], ["f", "", "", "sum"], domain="com.microsoft"
    )
    graph = model([node, helper.make_node("Add", ["f", "sum"], ["y"])])
    graph.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "g"))
    assert shapes(graph, 2)["sum"] == (2, 4)
    assert shapes(graph, 2)["y"] == (2, 4)


def test_a_product_of_transposed_factors_stays_unknown() -> None:
    node = helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1)
    assert "y" not in shapes(model([node]), 2)


def test_an_operator_that_the_evaluator_refuses() -> None:
    graph = model(
        [
            helper.make_node("Div", ["one", "zero"], ["q"]),
            helper.make_node("Reshape", ["x", "bad"], ["y"]),
            helper.make_node("Squeeze", ["one", "five"], ["s"]),
        ],
        one=[1],
        zero=[0],
        bad=[-1],
        five=[5],
    )
    assert shapes(graph, 2).get("y") in (None, (8,))


@pytest.mark.parametrize("opset", [9, 18])
def test_blocked_channels_are_cut_to_those_of_the_graph(opset: int) -> None:
    node = helper.make_node("ReorderOutput", ["x"], ["r"], domain="com.microsoft.nchwc", channels=3)
    graph = model([node, helper.make_node("Relu", ["r"], ["y"])])
    graph.opset_import[0].version = opset
    assert shapes(graph, 5)["y"] == (5, 3)
