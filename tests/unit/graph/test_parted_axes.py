"""Axes on which a graph joins what is of different kinds, against what ONNX Runtime joins."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.parted_axes import parted_axes
from aotc.session.slices import laid_out
from aotc.spec.parted import PartedAxis

Shape = list[int | str]
N = helper.make_node


def graph(
    nodes: list[onnx.NodeProto], inputs: dict[str, Shape], constants: dict[str, Any] | None = None
) -> onnx.ModelProto:
    """A model of `nodes` with the output `y`, with the shapes of its values."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in inputs.items()
    ]
    made = helper.make_graph(
        nodes,
        "g",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def found_in(model: onnx.ModelProto) -> tuple[PartedAxis, ...]:
    return parted_axes(model).get("y", ())


def answer(model: onnx.ModelProto, inputs: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(["y"], inputs)
    return np.asarray(found)


def test_a_head_that_joins_boxes_and_scores() -> None:
    model = graph(
        [N("Concat", ["b", "s"], ["y"], "join", axis=1)], {"b": [1, 4, 9], "s": [1, 80, 9]}
    )
    (found,) = found_in(model)
    assert (found.node, found.axis, found.starts, found.steps) == ("join", 1, (0, 4), ())


@pytest.mark.parametrize("batch", [1, 3])
def test_steps_lead_back_to_what_was_joined(batch: int) -> None:
    """Reshapes, transposes and elementwise operators between the join and the output."""
    model = graph(
        [
            N("Concat", ["b", "s"], ["c"], "join", axis=-2),
            N("Mul", ["c", "two"], ["m"], "mul"),
            N("Transpose", ["m"], ["t"], "turn", perm=[0, 2, 1]),
            N("Reshape", ["t", "flat"], ["r"], "flatten"),
            N("Cast", ["r"], ["d"], "cast", to=TensorProto.DOUBLE),
            N("Cast", ["d"], ["y"], "back", to=TensorProto.FLOAT),
        ],
        {"b": ["n", 4, 9], "s": ["n", 3, 9]},
        {"two": np.float32(2), "flat": np.array([0, -1], np.int64)},
    )
    *merged, found = found_in(model)
    assert [(each.node, each.axis, each.starts) for each in merged] == [
        ("flatten", 1, (0,)),
        ("flatten", 2, (0,)),
    ]
    assert (found.node, found.starts) == ("join", (0, 4))
    rng = np.random.default_rng(0)
    given = {
        name: rng.normal(size=(batch, n, 9)).astype(np.float32) for name, n in (("b", 4), ("s", 3))
    }
    back = laid_out(answer(model, given), found.steps)
    boxes, scores = np.split(back, found.starts[1:], axis=found.axis)
    np.testing.assert_array_equal(boxes, 2 * given["b"])
    np.testing.assert_array_equal(scores, 2 * given["s"])


def test_what_other_nodes_take_apart() -> None:
    sizes = np.array([4, 1, 80], np.int64)
    cases = {
        "Split": (N("Split", ["y", "sizes"], ["p", "q", "r"], "split", axis=2), (0, 4, 5)),
        "Slice": (N("Slice", ["y", "start", "end", "axis"], ["p"], "slice"), (0, 4, 84)),
        "Gather": (N("Gather", ["y", "one"], ["p"], "gather", axis=2), (0, 4, 5)),
    }
    constants = {
        "sizes": sizes,
        "start": np.array([4], np.int64),
        "end": np.array([-1], np.int64),
        "axis": np.array([-1], np.int64),
        "one": np.int64(4),
    }
    for op, (node, starts) in cases.items():
        model = graph([N("Relu", ["x"], ["y"], "relu"), node], {"x": ["n", 9, 85]}, constants)
        (found,) = found_in(model)
        assert (found.node, found.axis % 3, found.starts) == (node.name, 2, starts), op


def test_parts_behind_one_of_an_unknown_size_are_not_claimed() -> None:
    model = graph(
        [N("Concat", ["a", "b", "c"], ["y"], "join", axis=1)],
        {"a": ["n", 4], "b": ["n", "m"], "c": ["n", 3]},
    )
    (found,) = found_in(model)
    assert found.starts == (0, 4)
    model = graph(
        [N("Concat", ["b", "a"], ["y"], "join", axis=1)], {"a": ["n", 4], "b": ["n", "m"]}
    )
    assert found_in(model) == ()


@pytest.mark.parametrize(
    "nodes",
    [
        [N("Relu", ["x"], ["y"], "relu")],
        [N("Concat", ["x"], ["y"], "join", axis=1)],
        # It mixes what was joined.
        [N("Concat", ["x", "x"], ["c"], "join", axis=1), N("Softmax", ["c"], ["y"], "mix", axis=1)],
    ],
)
def test_nothing_is_claimed_without_need(nodes: list[onnx.NodeProto]) -> None:
    assert found_in(graph(nodes, {"x": ["n", 4]})) == ()


def test_axes_of_parts_that_are_flattened_before_they_are_joined() -> None:
    """Two scales of a detector, each with 5 values of different kinds for each place."""
    shape = np.array([1, -1], np.int64)
    model = graph(
        [
            N("Add", ["a", "b"], ["m"], "add"),
            N("Reshape", ["m", "flat"], ["p"], "large"),
            N("Reshape", ["c", "flat"], ["q"], "small"),
            N("Concat", ["p", "q"], ["y"], "join", axis=1),
        ],
        {"a": [1, 4, 5], "b": [1, 4, 5], "c": [1, 2, 5]},
        {"flat": shape},
    )
    rng = np.random.default_rng(0)
    given = {
        name: rng.normal(size=(1, n, 5)).astype(np.float32)
        for name, n in (("a", 4), ("b", 4), ("c", 2))
    }
    y = answer(model, given)
    joined, *merged = found_in(model)
    assert (joined.node, joined.starts, joined.joined) == ("join", (0, 20), ("p", "q"))
    whole = {"large": given["a"] + given["b"], "small": given["c"]}
    assert [(each.node, each.axis) for each in merged] == [
        (node, axis) for node in whole for axis in (1, 2)
    ]
    for each in merged:
        np.testing.assert_array_equal(laid_out(y, each.steps), whole[each.node])


def test_a_reshape_that_joins_no_axes_claims_nothing() -> None:
    model = graph(
        [N("Reshape", ["x", "shape"], ["y"], "reshape")],
        {"x": ["n", 6]},
        {"shape": np.array([0, 2, 3], np.int64)},
    )
    assert found_in(model) == ()
