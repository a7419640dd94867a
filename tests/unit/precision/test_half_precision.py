"""Half precision of small graphs: casts, constants, masks, positions, and the float32 twin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import ml_dtypes
import model_parts
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from model_parts import constant, info
from onnx import TensorProto, helper, numpy_helper
from openvino_models import model_of, weight

from aotc.graph.passes.base import run_passes
from aotc.precision.half_conversion import (
    HALF_TYPES,
    HalfName,
    HalfPrecision,
    TypedGraph,
    lift_constants,
    saving_nodes,
)
from aotc.precision.half_ranges import LOWEST, lower_masks, position_nodes
from aotc.precision.half_twins import float_twin

node = partial(model_parts.node, name="n_{output}")

CUDA = "CUDAExecutionProvider"
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def graph_of(model: onnx.ModelProto, to: HalfName = "float16") -> TypedGraph:
    return TypedGraph(typed(model), HALF_TYPES[to].tensor_name, CUDA)


def in_half(
    model: onnx.ModelProto, *kept: str, to: HalfName = "float16"
) -> tuple[onnx.ModelProto, list[tuple[str, str, int]]]:
    """The changed model, and its casts: what they read and make, and the type."""
    made = typed(model)
    rewrite = HalfPrecision(to=to, ep=CUDA, kept=frozenset(kept), read=numpy_helper.to_array)
    run_passes(made, (rewrite,))
    onnx.checker.check_model(made, full_check=True)
    casts = [
        (one.input[0], one.output[0], one.attribute[0].i)
        for one in made.graph.node
        if one.op_type == "Cast"
    ]
    return made, casts


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def chain() -> onnx.ModelProto:
    """x through two matrices, with ReLU between and a sum around."""
    return model_of(
        [
            node("MatMul", ["x", "v"], "a"),
            node("Relu", ["a"], "b"),
            node("MatMul", ["b", "w"], "c"),
            node("Add", ["c", "a"], "y"),
        ],
        [info("x", ["n", 8])],
        [info("y", ["n", 8])],
        [weight("v", 8, 8), weight("w", 8, 8, seed=1)],
    )


X = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)


def test_inputs_and_outputs_stay_and_one_cast_each_is_added() -> None:
    made, casts = in_half(chain())
    assert casts == [("x", "x_float16", HALF), ("y_float16", "y", FLOAT)]
    assert types_of(made) == {"v_float16": HALF, "w_float16": HALF}
    (expected,), (found,) = run(chain(), {"x": X}), run(made, {"x": X})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert not np.array_equal(found, expected)


def test_a_kept_node_is_between_two_casts_and_shares_them() -> None:
    made, casts = in_half(chain(), "n_c")
    assert casts == [
        ("x", "x_float16", HALF),
        ("b", "b_float32", FLOAT),
        ("c", "c_float16", HALF),
        ("y_float16", "y", FLOAT),
    ]
    assert types_of(made) == {"v_float16": HALF, "w": FLOAT}


def test_a_value_that_is_read_in_both_types_is_cast_once() -> None:
    """`a` is made in float32; the ReLU and the sum read it in half precision."""
    _, casts = in_half(chain(), "n_a")
    assert casts == [("a", "a_float16", HALF), ("y_float16", "y", FLOAT)]


def test_a_constant_of_both_types_is_stored_twice() -> None:
    model = chain()
    model.graph.node[2].input[1] = "v"
    del model.graph.initializer[1]
    made, casts = in_half(model, "n_c")
    assert types_of(made) == {"v": FLOAT, "v_float16": HALF}
    assert all(not name.startswith("v") for name, _, _ in casts)


def test_an_output_that_is_read_inside_too() -> None:
    model = chain()
    model.graph.output.append(info("b", ["n", 8]))
    made, casts = in_half(model)
    assert ("b_float16", "b", FLOAT) in casts
    assert len(casts) == 3
    first, second = run(made, {"x": X})
    assert (first.dtype, second.dtype) == (np.float32, np.float32)


def test_what_an_operator_only_has_in_float32_stays() -> None:
    """The scales of Resize; and the statistics of LayerNormalization, which nothing reads."""
    scales = constant("s", np.array([1, 1, 2, 2], np.float32))
    model = model_of(
        [node("Relu", ["x"], "a"), node("Resize", ["a", "", "s"], "y", mode="nearest")],
        [info("x", [1, 2, 4, 4])],
        [info("y", [1, 2, 8, 8])],
        [scales],
    )
    made, casts = in_half(model)
    assert types_of(made) == {"s": FLOAT}
    assert [source for source, _, _ in casts] == ["x", "y_float16"]


def test_casts_and_constants_of_the_model_change_with_their_readers() -> None:
    shape = constant("s", np.array([3, 8]))
    fill = helper.make_tensor("value", FLOAT, [1], [0.5])
    model = model_of(
        [
            node("ConstantOfShape", ["s"], "a", value=fill),
            node("Cast", ["x"], "b", to=FLOAT),
            node("Mul", ["a", "b"], "c"),
            node("Constant", [], "k", value_float=2.0),
            node("Mul", ["c", "k"], "y"),
        ],
        [info("x", [3, 8], TensorProto.BOOL)],
        [info("y", [3, 8])],
        [shape],
    )
    lift_constants(model)
    made, casts = in_half(model)
    assert casts == [("x", "b", HALF), ("y_float16", "y", FLOAT)]
    assert types_of(made) == {"s": TensorProto.INT64, "k_float16": HALF}
    (found,) = run(made, {"x": np.ones((3, 8), bool)})
    np.testing.assert_array_equal(found, np.ones((3, 8), np.float32))


def test_subgraphs_are_kept_and_read_outer_values_in_float32() -> None:
    """Both branches read `a`, one of them in a nested subgraph's place; a name of its own stays."""
    then = helper.make_graph([node("Relu", ["a"], "t")], "then", [], [info("t", ["n", 8])])
    other = helper.make_graph(
        [node("Identity", ["a"], "b"), node("MatMul", ["b", "w"], "e")],
        "else", [], [info("e", ["n", 8])],
    )  # fmt: skip
    model = model_of(
        [
            node("MatMul", ["x", "w"], "a"),
            node("If", ["c"], "d", then_branch=then, else_branch=other),
            node("Relu", ["d"], "y"),
        ],
        [info("x", ["n", 8]), info("c", [], TensorProto.BOOL)],
        [info("y", ["n", 8])],
        [weight("w", 8, 8)],
    )
    made, casts = in_half(model, "n_d")
    assert ("a", "a_float32", FLOAT) in casts
    assert types_of(made) == {"w": FLOAT, "w_float16": HALF}
    for side in (True, False):
        feeds = {"x": X, "c": np.array(side)}
        (expected,), (found,) = run(model, feeds), run(made, feeds)
        np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize(
    ("values", "to", "holds"),
    [
        ([1.0, 65504.0], "float16", True),
        ([1.0, 65519.0], "float16", True),
        ([1.0, -65520.0], "float16", False),
        ([1.0, np.inf, -np.inf, np.nan], "float16", True),
        ([1e-9, 0.0], "float16", False),
        ([1e-9, 1.0], "float16", True),
        ([0.0], "float16", True),
        ([], "float16", True),
        ([1e38, 1e-38], "bfloat16", True),
        ([-3.4028235e38], "bfloat16", False),
    ],
)
def test_what_a_type_holds(values: list[float], to: str, holds: bool) -> None:
    assert HALF_TYPES[to].holds(np.array(values, np.float32)) is holds


def masked(*, reader: str = "Softmax") -> onnx.ModelProto:
    """A mask of the lowest float32 that is added to scores."""
    return model_of(
        [
            node("Where", ["m", "zero", "lowest"], "a"),
            node("Add", ["x", "a"], "b"),
            node(reader, ["b"], "y"),
        ],
        [info("x", ["n", 8]), info("m", ["n", 8], TensorProto.BOOL)],
        [info("y", ["n", 8])],
        [constant("zero", np.float32(0)), constant("lowest", np.finfo(np.float32).min)],
    )


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_a_mask_becomes_a_number_that_half_precision_has(to: HalfName) -> None:
    model = masked()
    feeds = {"x": X, "m": np.arange(24).reshape(3, 8) % 3 > 0}
    before = run(model, feeds)[0]
    assert lower_masks(graph_of(model, to), HALF_TYPES[to], numpy_helper.to_array) == 1
    graph = graph_of(model, to)
    lower_masks(graph, HALF_TYPES[to], numpy_helper.to_array)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.constants.values()}
    assert (constants["lowest"], constants["zero"]) == (LOWEST, 0)
    np.testing.assert_array_equal(run(graph.model, feeds)[0], before)


def test_a_number_that_is_read_otherwise_is_no_mask() -> None:
    graph = graph_of(masked(reader="Relu"))
    assert lower_masks(graph, HALF_TYPES["float16"], numpy_helper.to_array) == 0
    also = masked()
    also.graph.output.append(info("a", ["n", 8]))
    assert lower_masks(graph_of(also), HALF_TYPES["float16"], numpy_helper.to_array) == 0


def test_sines_of_positions_are_found_and_those_of_features_are_not() -> None:
    model = model_of(
        [
            node("Cast", ["p"], "a", to=FLOAT),
            node("Mul", ["a", "f"], "b"),
            node("Sin", ["b"], "c"),
            node("MatMul", ["c", "w"], "d"),
            node("Softmax", ["d"], "e"),
            node("Cos", ["e"], "y"),
        ],
        [info("p", [4, 1], TensorProto.INT64)],
        [info("y", [4, 8])],
        [constant("f", np.linspace(0, 1, 8, dtype=np.float32)), weight("w", 8, 8)],
    )
    graph = graph_of(model)
    assert [graph.nodes[index].name for index in sorted(position_nodes(graph))] == [
        "n_a", "n_b", "n_c",
    ]  # fmt: skip


def test_a_cheap_node_between_kept_ones_is_kept_where_that_saves_casts() -> None:
    graph = graph_of(chain())
    assert saving_nodes(graph, {0, 2}) == {1, 3}
    assert saving_nodes(graph, set()) == set()
    _, casts = in_half(chain(), "n_a", "n_c")
    assert len(casts) == 4
    assert in_half(chain(), "n_a", "n_c", "n_b", "n_y")[1] == []


def test_the_twin_rounds_where_bfloat16_does() -> None:
    made, _ = in_half(chain(), "n_c", to="bfloat16")
    with pytest.raises(Exception, match="Could not find an implementation"):
        run(made, {"x": X})
    (found,) = run(float_twin(made, CUDA, "bfloat16"), {"x": X})
    constants = {one.name: numpy_helper.to_array(one) for one in chain().graph.initializer}

    def rounded(values: Any) -> Any:
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    a = rounded(rounded(X) @ rounded(constants["v"]))
    c = rounded(np.maximum(a, 0) @ constants["w"])
    np.testing.assert_allclose(found, rounded(c + a), rtol=1e-2, atol=1e-6)
    assert np.array_equal(found, rounded(found))


def test_every_operator_of_a_graph_that_is_in_half_is_told_by_its_types() -> None:
    made, _ = in_half(chain(), "n_c")
    stated = {one.name: one.type.tensor_type.elem_type for one in made.graph.value_info}
    inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True, check_type=True)
    for one in inferred.graph.value_info:
        assert stated.get(one.name, one.type.tensor_type.elem_type) == (
            one.type.tensor_type.elem_type
        )


def test_an_operator_that_onnx_runtime_adds_to_the_standard_changes_too() -> None:
    model = model_of(
        [
            node("MatMul", ["x", "w"], "a"),
            node("SimplifiedLayerNormalization", ["a", "g"], "b", axis=-1),
            node("Relu", ["b"], "y"),
        ],
        [info("x", ["n", 8])],
        [info("y", ["n", 8])],
        [weight("w", 8, 8), constant("g", np.ones(8, np.float32))],
    )
    model.graph.value_info.extend([info("a", ["n", 8]), info("b", ["n", 8])])
    rewrite = HalfPrecision(to="float16", ep=CUDA, read=numpy_helper.to_array)
    before = run(model, {"x": X})[0]
    run_passes(model, (rewrite,))
    assert types_of(model) == {"w_float16": HALF, "g_float16": HALF}
    np.testing.assert_allclose(run(model, {"x": X})[0], before, atol=5e-3)
