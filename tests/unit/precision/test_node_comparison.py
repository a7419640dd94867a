"""Errors by node, measured on real graphs: exact, wrong at one node, fused, quantized, in half."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantized_images import images, quantized

from aotc.precision.half_conversion import HalfPrecision
from aotc.precision.node_comparison import Side, node_errors
from aotc.session.inference import with_types
from aotc.spec.evidence import NodeError, NodeErrors
from aotc.spec.precision import Tolerance
from aotc.spec.variant import SessionSpec

EXACT = Tolerance(atol=1e-5, rtol=1e-3, min_cosine=0.9999)
COARSE = Tolerance(atol=1e-2, rtol=0.1, min_cosine=0.99)
EXPORTS = Path(__file__).parents[2] / "data" / "exports"


def chain(wrong: str = "", by: float = 1.05) -> onnx.ModelProto:
    """`x` through six nodes; the weight of the node `wrong` is multiplied by `by`."""
    random = np.random.default_rng(5)

    def weight(node: str, *shape: int) -> onnx.TensorProto:
        data = random.standard_normal(shape).astype(np.float32) * 0.4
        return numpy_helper.from_array(data * (by if node == wrong else 1), f"{node}.w")

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "first.w"], ["a"], name="first"),
            helper.make_node("Relu", ["a"], ["b"], name="relu"),
            helper.make_node("MatMul", ["b", "second.w"], ["c"], name="second"),
            helper.make_node("Add", ["c", "b"], ["d"], name="sum"),
            helper.make_node("Mul", ["d", "scale.w"], ["e"], name="scale"),
            helper.make_node("Sigmoid", ["e"], ["y"], name="last"),
        ],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [weight("first", 8, 8), weight("second", 8, 8), weight("scale", 8)],
    )
    return checked(graph)


def checked(graph: onnx.GraphProto) -> onnx.ModelProto:
    """A valid model."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def side(folder: Path, name: str, model: onnx.ModelProto, level: Any = "disable") -> Side:
    """A model as a side, in a file."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return Side(model=path, weights=folder, session=SessionSpec(optimization=level, threads=1))


def rows(*shape: int) -> dict[str, Any]:
    """Input `x`."""
    return {"x": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}


def by_node(errors: NodeErrors) -> dict[str, NodeError]:
    """Errors by source node."""
    return {error.node: error for error in errors.nodes}


def test_equal_graphs_have_no_error_and_nobody_to_blame(tmp_path: Path) -> None:
    source = side(tmp_path, "source", chain())
    found = node_errors(source, source, rows(3, 8), EXACT, fixture="f")
    assert [error.node for error in found.nodes] == [
        *("first", "relu", "second", "sum", "scale", "last")
    ]
    assert all(error.max_abs == 0 and error.passed and error.added == 0 for error in found.nodes)
    assert (found.first, found.worst, found.uncompared, found.fixture) == ("", "", 0, "f")
    assert not found.outputs_changed


@pytest.mark.parametrize("wrong", ["first", "second", "scale"])
def test_a_wrong_node_is_the_first_and_the_worst(wrong: str, tmp_path: Path) -> None:
    source = side(tmp_path, "source", chain())
    found = node_errors(source, side(tmp_path, "wrong", chain(wrong)), rows(3, 8), EXACT)
    assert (found.first, found.worst) == (wrong, wrong)
    names = [error.node for error in found.nodes]
    for error in found.nodes[: names.index(wrong)]:
        assert error.passed
        assert error.max_abs == 0
    blamed = by_node(found)[wrong]
    assert not blamed.passed
    # Its weights are 1.05 times as large, so the error is 0.05 of the signal.
    assert blamed.sqnr_db == pytest.approx(-20 * math.log10(0.05), abs=1e-3)
    assert blamed.added == pytest.approx(0.05**2, rel=1e-3)


def test_what_follows_a_small_first_error_may_be_worse(tmp_path: Path) -> None:
    source = side(tmp_path, "source", chain())
    model = chain("first", 1.01)
    (scale,) = (tensor for tensor in model.graph.initializer if tensor.name == "scale.w")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * 1.3, "scale.w"))
    found = node_errors(source, side(tmp_path, "two", model), rows(3, 8), EXACT)
    assert (found.first, found.worst) == ("first", "scale")


def test_many_passes_measure_what_one_does(tmp_path: Path) -> None:
    source = side(tmp_path, "source", chain())
    wrong = side(tmp_path, "wrong", chain("second"))
    once = node_errors(source, wrong, rows(64, 8), EXACT)
    each = node_errors(source, wrong, rows(64, 8), EXACT, most_bytes=1)
    assert once == each
    assert once.first == "second"


def test_fusion_at_load_is_kept_while_values_are_read(tmp_path: Path) -> None:
    """As outputs of the graph at its own level, none of these values would be fused away."""
    source = side(tmp_path, "source", onnx.load(EXPORTS / "bert.onnx"))
    ids = {"input_ids": np.array([[3, 5, 7, 9]]), "attention_mask": np.ones((1, 4), np.int64)}
    names = {value.name for value in source.read().graph.input}
    given = {name: ids.get(name, np.zeros((1, 4), np.int64)) for name in names}
    loaded = Side(
        model=source.model, weights=tmp_path, session=SessionSpec(optimization="all", threads=1)
    )
    found = node_errors(source, loaded, given, EXACT)
    assert not found.outputs_changed
    assert (found.first, found.uncompared > 0) == ("", True)
    assert all(error.passed for error in found.nodes)
    # Some node stands for several of the source's, as a layer normalization or a Gelu does.
    assert max(len(error.covers) for error in found.nodes) > 2
    computed = {node.name for node in source.read().graph.node if node.op_type != "Constant"}
    assert {name for error in found.nodes for name in error.covers} <= computed | {
        node.name for node in source.read().graph.node
    }


@pytest.mark.parametrize("level", ["disable", "extended", "all"])
def test_quantized_values_are_compared_as_their_readers_see_them(
    level: str, tmp_path: Path
) -> None:
    """Quantizers drop the Relu: what the convolution itself makes is another value."""
    source = side(tmp_path, "images", images())
    model = quantized(source.model, tmp_path / "quantized.onnx")
    found = node_errors(source, side(tmp_path, "q", model, level), rows(2, 3, 4, 4), COARSE)
    assert by_node(found).keys() >= {"relu1", "conv2", "add", "pool", "flat", "fc"}
    assert not found.outputs_changed
    for error in found.nodes:
        assert error.sqnr_db is not None, error
        assert 20 < error.sqnr_db < 90, error


def test_a_wrong_scale_of_a_quantized_node_is_found_where_it_is_fused(tmp_path: Path) -> None:
    source = side(tmp_path, "images", images())
    model = quantized(source.model, tmp_path / "quantized.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "w2_scale":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 2, "w2_scale"))
    found = node_errors(source, side(tmp_path, "q", model, "all"), rows(2, 3, 4, 4), COARSE)
    assert (found.first, found.worst) == ("conv2", "conv2")


def test_a_node_that_overflows_in_half_precision_is_the_first_and_the_worst(
    tmp_path: Path,
) -> None:
    """The CPU computes it in float32 and goes on with that: as a value of the type it overflows."""
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "big"], ["a"], name="grow"),
            helper.make_node("Mul", ["a", "a"], ["b"], name="square"),
            helper.make_node("Mul", ["b", "small"], ["y"], name="shrink"),
        ],
        "overflow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [
            numpy_helper.from_array(np.float32(2000), "big"),
            numpy_helper.from_array(np.float32(1e-3), "small"),
        ],
    )
    model = checked(graph)
    source = side(tmp_path, "source", model)
    half = with_types(model, tmp_path)
    HalfPrecision(to="float16", ep="CUDAExecutionProvider", read=numpy_helper.to_array).apply(half)
    found = node_errors(source, side(tmp_path, "half", half), rows(4, 8), COARSE)
    assert (found.first, found.worst) == ("square", "square")
    assert by_node(found)["grow"].passed
    assert "infinite" in by_node(found)["square"].reason
    assert by_node(found)["square"].added is None
    # It only hands on what it was given.
    assert by_node(found)["shrink"].added == pytest.approx(0, abs=1e-6)


def test_bodies_of_control_flow_and_values_in_another_shape_count_as_uncompared(
    tmp_path: Path,
) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Neg", ["a"], ["inner"], name="inside"),
            helper.make_node("Abs", ["inner"], ["out"], name="inside2"),
        ],
        "body",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    )
    other = onnx.GraphProto()
    other.CopyFrom(body)

    def model(perm: list[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            [
                helper.make_node("Exp", ["x"], ["a"], name="exp"),
                helper.make_node(
                    "If", ["c"], ["b"], name="if", then_branch=body, else_branch=other
                ),
                helper.make_node("Transpose", ["b"], ["t"], name="turn", perm=perm),
                helper.make_node("ReduceSum", ["t"], ["y"], name="total", keepdims=0),
            ],
            "choice",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
                helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        )
        return checked(graph)

    source = side(tmp_path, "source", model([1, 0]))
    given = {**rows(2, 3), "c": np.array(True)}
    same = node_errors(source, source, given, EXACT)
    assert [error.node for error in same.nodes] == ["exp", "if", "turn", "total"]
    assert same.uncompared == 4
    turned = node_errors(source, side(tmp_path, "turned", model([0, 1])), given, EXACT)
    assert [error.node for error in turned.nodes] == ["exp", "if", "total"]
    assert turned.uncompared == 5
