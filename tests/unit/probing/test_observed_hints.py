"""Drawn inputs keep to the range of the user's samples."""

from __future__ import annotations

import numpy as np

from aotc.contract.manifest.interface import Value
from aotc.probing.inputs.observed_hints import observed_hints

X = Value(name="x", dtype="float32", shape=("batch", "width"))
IDS = Value(name="ids", dtype="int64", shape=("batch",))
SAMPLES = [
    {"x": np.array([[1, 2]], np.float32), "ids": np.array([7])},
    {"x": np.array([[3, 4]], np.float32), "ids": np.array([8])},
]


def test_drawn_values_keep_to_the_range_of_the_samples() -> None:
    uniform = {"kind": "uniform", "low": 1.0, "high": 4.0}
    assert observed_hints(SAMPLES, (X, IDS), {"ids": {"kind": "index", "high": 9}}) == {
        "x": uniform,
        "ids": {"kind": "index", "high": 9},
    }
    boxes = {"x": {"kind": "boxes"}}
    assert observed_hints(SAMPLES, (X,), boxes) == boxes
    assert observed_hints([], (X,), {}) == {}
