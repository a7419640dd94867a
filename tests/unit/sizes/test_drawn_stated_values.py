"""Generated inputs have stated values, whatever is drawn, retried or searched for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotc.graph.allowed_arrays import outside
from aotc.sizes.inputs.fixtures import alternatives, generate, stated_ends, with_one_sign
from aotc.sizes.inputs.samples import tiled
from aotc.sizes.inputs.searched import searched_values
from aotc.spec.allowed_values import AllowedValues
from aotc.spec.payload import Value

SIZES = {"batch": 3, "time": 6}
VALUES = (
    Value(name="x", dtype="float32", shape=("time", "batch")),
    Value(name="speed", dtype="float32", shape=(1,), allowed=AllowedValues(min=0.5, max=2.0)),
    Value(name="rate", dtype="int64", shape=(), allowed=AllowedValues(values=(8000, 16000))),
    Value(name="lengths", dtype="int64", shape=("batch",), allowed=AllowedValues(max="time")),
    Value(name="ids", dtype="int64", shape=("batch",)),
)
# What the graph would say of them.
HINTS: dict[str, Any] = {
    "speed": {"kind": "full", "value": -3.0},
    "rate": {"kind": "index", "high": 4, "or": [{"kind": "full", "value": 2}]},
    "lengths": {"kind": "index", "low": 1, "high": 900},
}


def assert_allowed(inputs: Any, **sizes: int) -> None:
    for value in VALUES:
        if value.allowed is not None:
            assert outside(inputs[value.name], value.allowed, {**SIZES, **sizes}) == ""


@pytest.mark.parametrize("seed", range(20))
def test_statements_win_over_what_the_graph_says(seed: int) -> None:
    drawn = generate(VALUES, SIZES, HINTS, seed)
    assert_allowed(drawn)
    assert drawn["lengths"].max() == 6
    # The bound that is not stated is that of the graph.
    assert drawn["lengths"].min() >= 1
    np.testing.assert_equal(drawn, generate(VALUES, SIZES, HINTS, seed))


def test_other_inputs_are_drawn_as_without_statements() -> None:
    plain = [Value(name=v.name, dtype=v.dtype, shape=v.shape) for v in VALUES]
    drawn, before = (generate(values, SIZES, {}, 5) for values in (VALUES, plain))
    for name in ("x", "ids"):
        np.testing.assert_array_equal(drawn[name], before[name])


def test_alternatives_are_first_the_ends_of_what_is_stated() -> None:
    found = list(alternatives(VALUES, HINTS))
    assert [each.what for each in found[:5]] == [
        "speed: 0.5 throughout",
        "speed: 2.0 throughout",
        "rate: 8000 throughout",
        "rate: 16000 throughout",
        "lengths: time throughout",
    ]
    assert len(found) > 5
    for each in found:
        assert_allowed(generate(VALUES, SIZES, each.hints, 5))
    assert generate(VALUES, SIZES, found[3].hints, 5)["rate"] == 16000
    assert list(generate(VALUES, SIZES, found[4].hints, 5)["lengths"]) == [6, 6, 6]


def test_searches_stay_within_what_is_stated() -> None:
    base = generate(VALUES, SIZES, HINTS, 5)
    names = {value.name for value in VALUES}
    found = list(searched_values(VALUES, base, SIZES, HINTS, 5, names, (1.0, 16000.0, 6.0)))
    for each in found:
        assert_allowed(each.inputs)
    # Numbers that the model compares with are tried where they are allowed.
    said = [each.what for each in found]
    assert "speed: 1 throughout" in said
    assert "rate: 16000" in said
    assert "lengths: 6" in said


def test_copies_of_one_sign_leave_stated_values() -> None:
    base = generate(VALUES, SIZES, {}, 5)
    found = with_one_sign(base, VALUES, {})
    assert set(found) == {"negative", "positive"}
    for copied in found.values():
        assert copied["speed"] is base["speed"]


def test_each_stated_end_is_tried_alone() -> None:
    base = generate(VALUES, SIZES, HINTS, 5)
    found = list(stated_ends(VALUES, base, SIZES))
    assert [f"{name} {end}" for name, end, _ in found] == [
        *("speed 0.5", "speed 2", "rate 8000", "rate 16000", "lengths 6"),
    ]
    for _, _, inputs in found:
        assert_allowed(inputs)
        assert sum(inputs[name] is not base[name] for name in base) == 1


def test_samples_at_other_sizes_stay_allowed() -> None:
    sample = generate(VALUES, SIZES, HINTS, 5)
    made = tiled([sample], VALUES, {"batch": 5, "time": 2})
    assert_allowed(made, batch=5, time=2)
    assert made["lengths"].max() == 2
