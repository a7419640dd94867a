"""Bound calls whose outputs are what inputs read next: caches in one buffer, states in two."""

from __future__ import annotations

import threading
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


class Lent:
    """An array of the host that is taken where it is, as a tensor of another library."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()


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


def test_calls_of_several_threads_follow_each_other(model: Model) -> None:
    call = model.bind(first_inputs(), carry=CARRY)
    lock, waits = call._device.lock, threading.Semaphore(0)

    class Watched:
        def __enter__(self) -> None:
            waits.release()
            lock.acquire()

        def __exit__(self, *failure: object) -> None:
            lock.release()

    call._device.lock = Watched()  # type: ignore[assignment]
    threads = [threading.Thread(target=call) for _ in range(4)]
    with lock:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waits.acquire(timeout=60)
    for thread in threads:
        thread.join()
    assert call.inputs["count"].numpy().tolist() == [4]


@pytest.mark.parametrize("carry", ["state", ["state"], [("state", "next_state")], 1], ids=repr)
def test_what_is_carried_is_given_by_name(model: Model, carry: Any) -> None:
    with pytest.raises(AotcError) as caught:
        model.bind(first_inputs(), carry=carry)
    assert (caught.value.code, caught.value.where) == ("AOTC-R021", "carry")


def test_what_is_written_shares_no_memory_with_another_input(model: Model) -> None:
    """One tensor of zeros for all caches would be written by each of them."""
    inputs = first_inputs()
    zeros = Lent(np.zeros((4, WIDTH), np.float32))
    given = {**inputs, "x": zeros, "state": zeros}
    assert model.bind(given)
    with pytest.raises(AotcError) as caught:
        model.bind(given, carry=CARRY)
    assert caught.value.code == "AOTC-R050"
    assert "input 'x'" in caught.value.found


def test_states_may_change_places(model: Model) -> None:
    """What is given may be in the memory that another input is copied to."""
    inputs = first_inputs()
    call = model.bind(inputs)
    found = call({"x": call.inputs["state"], "state": call.inputs["x"]})["y"].numpy()
    expected = model.run({**inputs, "x": inputs["state"], "state": inputs["x"]})["y"]
    np.testing.assert_array_equal(found, expected)


def test_tensors_that_only_the_call_has_live_until_it_has_read_them(model: Model) -> None:
    class Made(Mapping[str, Any]):
        """Makes each tensor when it is asked for it."""

        alive = 0

        def __getitem__(self, name: str) -> Any:
            made = Counted(inputs[name].copy())
            Made.alive += 1
            return made

        def __iter__(self) -> Iterator[str]:
            return iter(("x", "state"))

        def __len__(self) -> int:
            return 2

    class Counted(Lent):
        def __del__(self) -> None:
            Made.alive -= 1

    inputs = first_inputs()
    call = model.bind(inputs)
    run, seen = call._turns[0].run, list[int]()
    run.run, ran = lambda: seen.append(Made.alive) or ran(), run.run  # type: ignore[method-assign]
    call(Made())
    assert (seen, Made.alive) == ([2], 0)


def test_a_call_that_fails_may_be_made_again(model: Model) -> None:
    inputs = first_inputs()
    call = model.bind(inputs, carry=CARRY)
    call()
    before = {name: call.inputs[name].numpy() for name in CARRY}
    run = call._turns[1].run
    ran = run.run

    def fail() -> None:
        ran()
        raise AotcError("AOTC-R005", "it failed")

    run.run = fail  # type: ignore[method-assign]
    with pytest.raises(AotcError):
        call()
    run.run = ran  # type: ignore[method-assign]
    expected = model.run({**inputs, **before})
    for name, found in call().items():
        np.testing.assert_array_equal(found.numpy(), expected[name])


def test_a_refused_call_leaves_what_it_would_have_carried(bench: Workbench) -> None:
    """The run that showed what is wrong has written a row."""
    cache = np.zeros((ROWS, WIDTH), np.float32)
    row = Lent(np.ones((1, WIDTH), np.float32))
    inputs = {"cache": Lent(cache), "at": np.zeros((1, 1), np.int64), "row": row}
    with bench.load(bench.build(written(), "written")) as loaded:
        with pytest.raises(AotcError) as caught:
            loaded.bind(inputs, carry={"cache": "next_cache", "row": "total"})
        assert caught.value.code == "AOTC-R050"
        assert not cache.any()


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
