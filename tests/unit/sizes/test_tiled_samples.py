"""Inputs of any sizes made of samples."""

from __future__ import annotations

import numpy as np

from aotc.sizes.inputs.samples import tiled
from aotc.spec.payload import Value

IDS = Value(name="ids", dtype="int64", shape=("batch", "tokens"))
MASK = Value(name="mask", dtype="int64", shape=("batch", "tokens"))
FIXED = Value(name="scale", dtype="float32", shape=(2,))


def sample(start: int, tokens: int) -> dict[str, np.ndarray]:
    return {
        "ids": np.arange(start, start + tokens)[None],
        "mask": np.full((1, tokens), start),
        "scale": np.float32([start, start]),
    }


def test_rows_are_samples_and_other_axes_repeat_or_end() -> None:
    made = tiled([sample(0, 3), sample(10, 5)], (IDS, MASK, FIXED), {"batch": 3, "tokens": 4})
    assert made["ids"].tolist() == [[0, 1, 2, 0], [10, 11, 12, 13], [0, 1, 2, 0]]
    # The same samples for every input.
    assert made["mask"][:, 0].tolist() == [0, 10, 0]
    assert made["scale"].tolist() == [0, 0]


def test_it_begins_where_it_is_told() -> None:
    samples = [sample(0, 2), sample(10, 2), sample(20, 2)]
    made = tiled(samples, (IDS,), {"batch": 2, "tokens": 2}, first=4)
    assert made["ids"].tolist() == [[10, 11], [20, 21]]


def test_samples_with_several_rows_give_all_of_them() -> None:
    batch = {"ids": np.arange(6).reshape(3, 2)}
    made = tiled([batch], (IDS,), {"batch": 4, "tokens": 2})
    assert made["ids"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]


def test_sizes_of_zero() -> None:
    made = tiled([sample(1, 0)], (IDS,), {"batch": 0, "tokens": 3})
    assert made["ids"].shape == (0, 3)
    assert tiled([sample(1, 0)], (IDS,), {"batch": 2, "tokens": 3})["ids"].tolist() == [[0] * 3] * 2
    assert tiled([sample(1, 2)], (IDS,), {"batch": 2, "tokens": 0})["ids"].shape == (2, 0)
    assert made["ids"].dtype == np.int64


def test_what_is_no_tensor_is_the_first_samples() -> None:
    states = Value(name="states", kind="sequence", dtype="float32", shape=None)
    given = [{"states": [np.zeros(2)]}, {"states": [np.ones(2)]}]
    assert tiled(given, (states,), {})["states"] is given[0]["states"]
