"""Sketches of answers: bounded, judged as the answers themselves are, of every kind of value."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aotc.graph import values
from aotc.session.parity import compare
from aotc.session.sketches import is_exact, judge_sketch, sketch
from aotc.spec.answers import KeptValue
from aotc.spec.evidence import OutputError
from aotc.spec.precision import ParitySpec

FLOAT32 = ParitySpec().float32
LARGE = np.random.default_rng(5).standard_normal((3, 40, 100)).astype(np.float32)


def kept(value: Any) -> KeptValue:
    """As it is read from a document."""
    drawn = json.loads(json.dumps(sketch(value)))
    return KeptValue(
        name="y", value=values.describe(value), sha256="0" * 64, bytes=1, form="npy", sketch=drawn
    )


def judged(before: Any, now: Any) -> OutputError:
    error = judge_sketch(kept(before), now, FLOAT32)
    assert error is not None
    return error


@pytest.mark.parametrize(
    "dtype",
    [
        *("float16", "float32", "float64", "int8", "uint8", "int64", "bool", "complex64"),
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
    ],
)
def test_every_type_of_numbers(dtype: Any) -> None:
    array = (LARGE * 3).astype(np.float32).astype(dtype)
    assert judged(array, array.copy()).passed is not is_exact(array)
    other = (LARGE * 3 + 2).astype(np.float32).astype(dtype)
    assert not judged(array, other).passed
    assert judged(array[0, 0, :7], array[0, 0, :7].copy()).passed


def test_what_a_sketch_finds_the_whole_has() -> None:
    """Never the other way round: an error of a sketch is at most that of the values."""
    drawn = np.random.default_rng(1)
    for scale in (1e-6, 1e-4, 1e-2, 1.0):
        moved = LARGE + (drawn.standard_normal(LARGE.shape) * scale).astype(np.float32)
        whole, of_sketch = compare(LARGE, moved, FLOAT32, "y"), judged(LARGE, moved)
        assert 0 < of_sketch.max_abs <= whole.max_abs
        assert of_sketch.passed is whole.passed


def test_one_value_beyond_all_others_shows() -> None:
    for at in range(0, LARGE.size, 97):
        moved = LARGE.copy()
        moved.flat[at] = 10.0
        assert not judged(LARGE, moved).passed


def test_values_that_are_not_finite() -> None:
    spoiled = LARGE.copy()
    spoiled[0] = np.nan
    assert judged(spoiled, spoiled.copy()).passed
    assert not judged(spoiled, LARGE).passed
    infinite = LARGE.copy()
    infinite.flat[5] = np.inf
    # It is at no position of the sketch, and hides no extreme of its block.
    moved = infinite.copy()
    moved.flat[6] = 99.0
    assert not judged(infinite, moved).passed


def test_integers_that_differ_elsewhere() -> None:
    """Their digests differ, so that equal sketches do not make them equal."""
    labels = np.arange(100_000, dtype=np.int64)
    other = labels.copy()
    other[50_001] -= 1
    assert judged(labels, other).reason == "values differ that are not in the sketch"


def test_what_is_no_tensor() -> None:
    texts = np.array(["a", "b"], dtype=object)
    assert judged(texts, texts.copy()).passed
    assert not judged(texts, np.array(["a", "c"], dtype=object)).passed
    scores = [{0: 0.25, 1: 0.75}]
    assert judged(scores, [{0: 0.25, 1: 0.75000001}]).passed
    assert not judged(scores, [{0: 0.5, 1: 0.5}]).passed
    assert not judged([LARGE, LARGE], [LARGE, LARGE + 1]).passed
    assert judged(None, None).passed


def test_what_is_too_large_for_one() -> None:
    texts = np.array(["word" * 100] * 20, dtype=object)
    assert sketch(texts) is None
    assert judge_sketch(kept(texts), texts, FLOAT32) is None
    assert sketch([LARGE[0, 0]] * 17) is None


def test_another_type_or_shape() -> None:
    assert judged(LARGE, LARGE[:2]).reason.startswith("expected float32[3, 40, 100], found")
    assert not judged(LARGE, LARGE.astype(np.float64)).passed


def test_it_is_small() -> None:
    assert len(json.dumps(sketch(np.zeros((64, 3, 224, 224), np.float32)))) < 4096
    assert sketch(np.zeros((0, 3), np.float32)) is not None
