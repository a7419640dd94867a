"""Bound calls whose outputs are what inputs read next: caches in one buffer, states in two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench, only_variant

from aotc.base.errors import AotcError
from aotc.runtime.model import Model
from aotc.spec.profile import Profile
from aotc.spec.shapes import DimRange

WIDTH, ROWS = 4, 6


def recurrent() -> onnx.ModelProto:
    """state' = tanh(x + state @ weight), y = 2 * state', count' = count + 1."""
    weight = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["state", "weight"], ["turned"]),
        helper.make_node("Add", ["x", "turned"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next_state"]),
        helper.make_node("Add", ["next_state", "next_state"], ["y"]),
        helper.make_node("Add", ["count", "one"], ["next_count"]),
    ]
    shape = ["batch", WIDTH]
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("count", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("next_state", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("next_count", TensorProto.INT64, [1]),
        ],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(np.ones(1, np.int64), "one"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def written(*, reduction: str = "none", read_twice: bool = False) -> onnx.ModelProto:
    """A cache of rows, of which one is written at a time, and the sum of all its rows."""
    nodes = [
        helper.make_node(
            "ScatterND", ["cache", "at", "row"], ["next_cache"], name="write", reduction=reduction
        ),
        helper.make_node(
            "ReduceSum", ["cache" if read_twice else "next_cache", "rows"], ["total"], keepdims=0
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "written",
        [
            helper.make_tensor_value_info("cache", TensorProto.FLOAT, [ROWS, WIDTH]),
            helper.make_tensor_value_info("at", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [1, WIDTH]),
        ],
        [
            helper.make_tensor_value_info("next_cache", TensorProto.FLOAT, [ROWS, WIDTH]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, [WIDTH]),
        ],
        [numpy_helper.from_array(np.array([0], np.int64), "rows")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def built(bench: Workbench) -> Built:
    dims = {"batch": DimRange.from_json({"buckets": [1, 4], "outside": "pad"})}
    profile = Profile(schema="aotc.profile/1", name="carried", dims=dims)
    return bench.build(recurrent(), "recurrent", profile=profile)


@pytest.fixture(scope="module")
def model(bench: Workbench, built: Built) -> Iterator[Model]:
    with bench.load(built) as loaded:
        yield loaded


def first_inputs(batch: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(batch)
    return {
        "x": rng.standard_normal((batch, WIDTH), np.float32),
        "state": rng.standard_normal((batch, WIDTH), np.float32),
        "count": np.zeros(1, np.int64),
    }


CARRY = {"state": "next_state", "count": "next_count"}


def test_states_go_on_in_two_buffers_that_take_turns(model: Model) -> None:
    inputs = first_inputs()
    given = {name: array.copy() for name, array in inputs.items()}
    call = model.bind(given, ["y"], carry=CARRY)
    rng = np.random.default_rng(9)
    addresses = []
    for step in range(5):
        if step:
            inputs["x"] = rng.standard_normal((4, WIDTH), np.float32)
        expected = model.run(inputs)
        found = call({"x": inputs["x"]} if step else None)
        assert list(found) == ["y"]
        np.testing.assert_array_equal(found["y"].numpy(), expected["y"])
        inputs |= {name: expected[output] for name, output in CARRY.items()}
        for name in CARRY:
            np.testing.assert_array_equal(call.inputs[name].numpy(), inputs[name])
        addresses.append(call.inputs["state"].address)
    assert len(set(addresses)) == 2
    assert addresses[0] == addresses[2] != addresses[1]
    # Host arrays are copied, and stay as they are.
    np.testing.assert_array_equal(given["state"], first_inputs()["state"])


def test_a_state_that_is_given_replaces_what_was_carried(model: Model) -> None:
    inputs = first_inputs()
    call = model.bind(inputs, carry=CARRY)
    for steps in (1, 2):
        for _ in range(steps):
            call()
        found = call(inputs)
        expected = model.run(inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name].numpy(), array)


def test_making_a_call_does_not_step(model: Model) -> None:
    call = model.bind(first_inputs(), carry=CARRY)
    assert call.inputs["count"].numpy().tolist() == [0]
    assert call()["next_count"].numpy().tolist() == [1]
    assert call()["next_count"].numpy().tolist() == [2]


@pytest.mark.parametrize(
    ("carry", "batch"),
    [
        ({"nothing": "y"}, 4),
        ({"state": "nothing"}, 4),
        ({"state": "next_state", "x": "next_state"}, 4),
        ({"count": "y"}, 4),
        ({"state": "next_count"}, 4),
        ({"state": "next_state"}, 3),
    ],
    ids=["input", "output", "twice", "type", "shape", "padded"],
)
def test_what_cannot_be_carried_is_refused(
    model: Model, carry: Mapping[str, str], batch: int
) -> None:
    with pytest.raises(AotcError) as caught:
        model.bind(first_inputs(batch), carry=carry)
    assert caught.value.code == "AOTC-R050"


def test_rows_are_written_where_the_cache_is(bench: Workbench) -> None:
    built = bench.build(written(), "written")
    assert only_variant(built).in_place == {"cache": "next_cache"}
    cache = np.zeros((ROWS, WIDTH), np.float32)
    row = np.ones((1, WIDTH), np.float32)
    with bench.load(built) as loaded:
        call = loaded.bind(
            {"cache": cache, "at": np.zeros((1, 1), np.int64), "row": row},
            carry={"cache": "next_cache"},
        )
        assert call.inputs["cache"].address == call.outputs["next_cache"].address
        for at in range(ROWS):
            cache[at] = (at + 1) * row
            found = call({"at": np.array([[at]]), "row": (at + 1) * row})
            np.testing.assert_array_equal(found["total"].numpy(), cache.sum(0))
            np.testing.assert_array_equal(call.inputs["cache"].numpy(), cache)


@pytest.mark.parametrize("other", [{"reduction": "add"}, {"read_twice": True}], ids=str)
def test_what_would_be_read_too_late_has_two_buffers(
    bench: Workbench, other: Mapping[str, Any]
) -> None:
    """A sum is not written twice, and what another node reads is not overwritten before."""
    built = bench.build(written(**other), f"written_{next(iter(other))}")
    assert not only_variant(built).in_place
    inputs = {
        "cache": np.zeros((ROWS, WIDTH), np.float32),
        "at": np.ones((1, 1), np.int64),
        "row": np.ones((1, WIDTH), np.float32),
    }
    with bench.load(built) as loaded:
        call = loaded.bind(inputs, carry={"cache": "next_cache"})
        for _ in range(3):
            expected = loaded.run(inputs)
            for name, found in call().items():
                np.testing.assert_array_equal(found.numpy(), expected[name])
            inputs["cache"] = expected["next_cache"]
