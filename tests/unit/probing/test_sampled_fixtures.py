"""Fixtures of a model whose activations are observed: values of the user's samples, repeated."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotc.contract.manifest.interface import Value
from aotc.probing.inputs.fixture_plan import FixtureInputs
from aotc.probing.inputs.sampled_fixtures import observed_hints, with_sampled

X = Value(name="x", dtype="float32", shape=("batch", "width"))
IDS = Value(name="ids", dtype="int64", shape=("batch",))
SAMPLES = [
    {"x": np.array([[1, 2]], np.float32), "ids": np.array([7])},
    {"x": np.array([[3, 4]], np.float32), "ids": np.array([8])},
]


def fixture(name: str, batch: int, width: int) -> FixtureInputs:
    inputs: dict[str, Any] = {
        "x": np.zeros((batch, width), np.float32),
        "ids": np.zeros(batch, int),
    }
    return FixtureInputs(name, inputs, {"batch": batch, "width": width})


def test_samples_are_repeated_along_every_axis() -> None:
    (found,) = with_sampled([fixture("max", 3, 5)], SAMPLES, (X, IDS))
    assert (found.name, found.sizes) == ("max-sampled", {"batch": 3, "width": 5})
    expected = [[1, 2, 1, 2, 1], [3, 4, 3, 4, 3], [1, 2, 1, 2, 1]]
    np.testing.assert_array_equal(found.inputs["x"], np.array(expected, np.float32))
    # Integers may be shapes or indices: they stay as drawn.
    np.testing.assert_array_equal(found.inputs["ids"], np.zeros(3, int))
    assert found.is_users


def test_a_sample_is_cut_to_smaller_sizes() -> None:
    (found,) = with_sampled([fixture("random0", 1, 1)], SAMPLES, (X, IDS))
    np.testing.assert_array_equal(found.inputs["x"], np.array([[1]], np.float32))


def test_what_is_drawn_for_shipping_stays() -> None:
    names = [item.name for item in with_sampled([fixture("opt", 2, 2)], SAMPLES, (X,))]
    assert names == ["opt", "opt-sampled"]
    assert [f.name for f in with_sampled([fixture("min", 1, 2)], SAMPLES, (X,))] == ["min"]
    assert [f.name for f in with_sampled([fixture("user0", 1, 2)], SAMPLES, (X,))] == ["user0"]
    plain = [fixture("max", 3, 5)]
    assert with_sampled(plain, [], (X,)) == plain


def test_a_fixed_first_dim_is_of_one_sample() -> None:
    table = Value(name="t", dtype="float32", shape=(2, "width"))
    samples = [{"t": np.array([[1], [2]], np.float32)}, {"t": np.array([[3], [4]], np.float32)}]
    item = FixtureInputs("max", {"t": np.zeros((2, 2), np.float32)}, {"width": 2})
    (found,) = with_sampled([item], samples, (table,))
    np.testing.assert_array_equal(found.inputs["t"], np.array([[1, 1], [2, 2]], np.float32))


def test_drawn_values_keep_to_the_range_of_the_samples() -> None:
    uniform = {"kind": "uniform", "low": 1.0, "high": 4.0}
    assert observed_hints(SAMPLES, (X, IDS), {"ids": {"kind": "index", "high": 9}}) == {
        "x": uniform,
        "ids": {"kind": "index", "high": 9},
    }
    boxes = {"x": {"kind": "boxes"}}
    assert observed_hints(SAMPLES, (X,), boxes) == boxes
    assert observed_hints([], (X,), {}) == {}
