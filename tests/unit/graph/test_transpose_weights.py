"""Weights of float32 products, stored as their transposes: what changes, and the same answers."""

from __future__ import annotations

from typing import Any

import model_parts
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.after_optimizer import TransposeWeights, products_with_weights
from aotc.graph.passes.base import run_passes

DEPTH, COLUMNS = 3, 5


def weight(name: str, *shape: int, kind: Any = np.float32) -> onnx.TensorProto:
    numbers = np.random.default_rng(len(name)).standard_normal(shape)
    return numpy_helper.from_array(numbers.astype(kind), name)


def product(left: str, right: str, made: str) -> onnx.NodeProto:
    return helper.make_node("MatMul", [left, right], [made], name=f"n_{made}")


def model_of_x(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    outputs: list[onnx.ValueInfoProto],
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of `x`, whose rows are as long as DEPTH."""
    inputs = [info("x", ["batch", "rows", DEPTH], kind)]
    return model_parts.model_of(nodes, inputs, outputs, weights, opset=18, ir_version=9)


def single() -> onnx.ModelProto:
    return model_of_x(
        [product("x", "w", "y")], [weight("w", DEPTH, COLUMNS)], [info("y", [None] * 3)]
    )


def shared() -> onnx.ModelProto:
    """Two products with one weight."""
    nodes = [
        product("x", "w", "a"),
        helper.make_node("Tanh", ["a"], ["b"], name="n_b"),
        product("b", "w", "y"),
    ]
    return model_of_x(nodes, [weight("w", DEPTH, DEPTH)], [info("y", [None] * 3)])


def read_elsewhere() -> onnx.ModelProto:
    """The sum reads the weight as it lies."""
    nodes = [
        product("x", "w", "a"),
        helper.make_node("Add", ["a", "w"], ["y"], name="n_y"),
    ]
    return model_of_x(nodes, [weight("w", DEPTH, DEPTH)], [info("y", [None] * 3)])


def read_on_the_left() -> onnx.ModelProto:
    """A product has the weight on both sides, of which only the right one could be changed."""
    nodes = [product("w", "w", "square"), product("x", "square", "y")]
    return model_of_x(nodes, [weight("w", DEPTH, DEPTH)], [info("y", [None] * 3)])


def read_in_a_branch() -> onnx.ModelProto:
    """A subgraph reads the weight of the main graph."""
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["w"], [f"{name}_y"], name=f"n_{name}")],
            name,
            [],
            [info(f"{name}_y", [DEPTH, DEPTH])],
        )
        for name, op in (("then_branch", "Identity"), ("else_branch", "Neg"))
    }
    nodes = [
        product("x", "w", "y"),
        helper.make_node("If", ["yes"], ["z"], name="n_z", **branches),
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    outputs = [info("y", [None] * 3), info("z", [DEPTH, DEPTH])]
    return model_of_x(nodes, [weight("w", DEPTH, DEPTH), yes], outputs)


def also_an_output() -> onnx.ModelProto:
    outputs = [info("y", [None] * 3), info("w", [DEPTH, COLUMNS])]
    return model_of_x([product("x", "w", "y")], [weight("w", DEPTH, COLUMNS)], outputs)


def also_an_input() -> onnx.ModelProto:
    """A caller may give other values than the initializer's."""
    model = single()
    model.graph.input.append(info("w", [DEPTH, COLUMNS]))
    return model


def half() -> onnx.ModelProto:
    kind = TensorProto.FLOAT16
    weights = [weight("w", DEPTH, COLUMNS, kind=np.float16)]
    return model_of_x([product("x", "w", "y")], weights, [info("y", [None] * 3, kind)], kind)


def stacked() -> onnx.ModelProto:
    """A weight of three axes is not one matrix."""
    weights = [weight("w", 2, DEPTH, COLUMNS)]
    return model_of_x([product("x", "w", "y")], weights, [info("y", [None] * 3)])


def computed() -> onnx.ModelProto:
    """No side of the product is a constant."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="n_t", perm=[0, 2, 1]),
        product("x", "t", "y"),
    ]
    return model_of_x(nodes, [], [info("y", [None] * 3)])


def answers(model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x = np.random.default_rng(7).standard_normal((2, DEPTH, DEPTH)).astype(np.float32)
    return list(session.run(None, {"x": x}))


def transpose(model: onnx.ModelProto) -> None:
    run_passes(model, (TransposeWeights(read=numpy_helper.to_array),))


def initializer(model: onnx.ModelProto, name: str) -> np.ndarray[Any, Any]:
    (found,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    return numpy_helper.to_array(found)


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


@pytest.mark.parametrize(("make", "count"), [(single, 1), (shared, 2)])
def test_weights_are_transposed_once_and_answers_stay(make: Any, count: int) -> None:
    before = make()
    after = copy_of(before)
    transpose(after)
    onnx.checker.check_model(before)
    products = [node for node in after.graph.node if node.op_type != "Tanh"]
    assert [(node.op_type, node.domain) for node in products] == [
        ("FusedMatMul", "com.microsoft")
    ] * count
    for node in products:
        assert {item.name: item.i for item in node.attribute} == {"transB": 1}
    assert np.array_equal(initializer(after, "w"), initializer(before, "w").T)
    assert [item.domain for item in after.opset_import] == ["", "com.microsoft"]
    for found, expected in zip(answers(after), answers(before), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        read_elsewhere,
        read_on_the_left,
        read_in_a_branch,
        also_an_output,
        also_an_input,
        half,
        stacked,
        computed,
    ],
)
def test_what_something_else_reads_or_is_no_float32_matrix_stays(make: Any) -> None:
    before = make()
    after = copy_of(before)
    assert products_with_weights(after) == []
    transpose(after)
    assert after == before


@pytest.mark.parametrize("make", [single, shared])
def test_a_second_time_changes_nothing(make: Any) -> None:
    once = make()
    transpose(once)
    twice = copy_of(once)
    transpose(twice)
    assert twice == once


def test_a_weight_that_stays_does_not_keep_others() -> None:
    nodes = [
        product("x", "w", "a"),
        helper.make_node("Add", ["a", "w"], ["b"], name="n_b"),
        product("b", "v", "y"),
    ]
    weights = [weight("w", DEPTH, DEPTH), weight("v", DEPTH, COLUMNS)]
    before = model_of_x(nodes, weights, [info("y", [None] * 3)])
    after = copy_of(before)
    transpose(after)
    assert [node.op_type for node in after.graph.node] == ["MatMul", "Add", "FusedMatMul"]
    assert np.array_equal(initializer(after, "w"), initializer(before, "w"))
    (found,), (expected,) = answers(after), answers(before)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_operators_of_onnx_runtime_are_imported_once() -> None:
    model = single()
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    transpose(model)
    assert [item.domain for item in model.opset_import] == ["", "com.microsoft"]
