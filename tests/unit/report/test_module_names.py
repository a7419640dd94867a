from __future__ import annotations

from aotc.report.html.graph_data import DrawnNode
from aotc.report.html.graph_drawing import modules_of


def node(name: str, reads: str, *weights: str) -> DrawnNode:
    """A node that makes a value of its own name."""
    return DrawnNode(
        name=name, op="Op", inputs=tuple(reads.split()), outputs=(name,), weights=weights
    )


def test_paths_in_names_of_nodes() -> None:
    nodes = (
        node("/encoder/layer.0/attention/MatMul", "x"),
        node("/encoder/layer.0/attention/Mul/GeluFusion/", "/encoder/layer.0/attention/MatMul"),
        node("/pooler/Gemm", "/encoder/layer.0/attention/Mul/GeluFusion/"),
    )
    attention = ("encoder", "layer.0", "attention")
    assert modules_of(nodes) == [attention, attention, ("pooler",)]


def test_names_of_weights_where_nodes_have_numbers() -> None:
    nodes = (
        node("MatMul_1", "x", "193"),
        node("Add_2", "MatMul_1", "encoder.layer.0.dense.bias"),
        node("Relu_3", "Add_2"),
        node("Gemm_4", "Relu_3", "pooler.weight", "pooler.bias"),
    )
    dense = ("encoder", "layer.0", "dense")
    assert modules_of(nodes) == [dense, dense, dense, ("pooler",)]


def test_what_parts_of_a_module_come_to_is_of_the_module() -> None:
    nodes = (
        node("q", "x", "layer.0.attention.query.weight"),
        node("k", "x", "layer.0.attention.key.weight"),
        node("product", "q k"),
        node("out", "product", "layer.0.attention.out.weight"),
        node("sum", "out x"),
        node("next", "sum", "layer.1.attention.query.weight"),
        node("later", "next sum"),
    )
    found = dict(zip((n.name for n in nodes), modules_of(nodes), strict=True))
    # All begin with nothing in common but their kind: layer.0 and layer.1 differ.
    assert found["product"] == ("layer.0", "attention")
    assert found["sum"] == ("layer.0", "attention", "out")
    assert found["later"] == ("layer.1", "attention", "query")


def test_a_weight_of_several_nodes_tells_nothing() -> None:
    nodes = (
        node("a", "x", "first.bias"),
        node("b", "a", "first.bias"),
        node("c", "b", "last.weight"),
    )
    assert modules_of(nodes) == [(), (), ()] or modules_of(nodes)[2] in ((), ("last",))
    assert modules_of(nodes)[0] == modules_of(nodes)[1]


def test_what_all_begin_with_is_left_out() -> None:
    nodes = (node("a", "x", "network.one.weight"), node("b", "a", "network.two.weight"))
    assert modules_of(nodes) == [("one",), ("two",)]


def test_names_that_tell_nothing() -> None:
    nodes = (node("Conv_1", "x", "onnx::Conv_7"), node("Relu_2", "Conv_1"))
    assert modules_of(nodes) == [(), ()]
