"""The comparison of outputs: properties over random arrays, and every way to fail."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from aotc.session import parity
from aotc.session.parity import UNBOUNDED, compare, same_bits
from aotc.spec.codec import decode, encode
from aotc.spec.evidence import OutputError
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.precision import Tolerance

EXACT = Tolerance(atol=0.0, rtol=0.0, min_cosine=1.0 - 1e-12)
LOOSE = Tolerance(atol=1e-3, rtol=1e-2)

floats = npst.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
    elements={"allow_nan": True, "allow_infinity": True},
)
integers = npst.arrays(npst.integer_dtypes(endianness="="), npst.array_shapes(max_side=5))


@given(floats)
def test_an_array_equals_itself_exactly(array: np.ndarray) -> None:
    error = compare(array, array.copy(), EXACT, "y")
    assert error.passed, error
    assert error.max_abs == error.max_rel == 0.0
    assert error.cosine is None or error.cosine == pytest.approx(1.0, abs=1e-12)


@given(floats, st.floats(0, 0.1), st.floats(0, 0.1), st.data())
def test_the_verdict_is_the_stated_rule(
    reference: np.ndarray, atol: float, rtol: float, data: st.DataObject
) -> None:
    reference = np.nan_to_num(reference.astype(np.float64), nan=0, posinf=1, neginf=-1) % 100
    noise = data.draw(npst.arrays(np.float64, reference.shape, elements=st.floats(-1, 1)))
    actual = reference + noise * data.draw(st.sampled_from([1e-3, 0.1, 1.0]))
    error = compare(
        reference, actual, Tolerance(atol=atol, rtol=rtol, min_cosine=-1, max_slice=1e9), "y"
    )
    worst = np.abs(actual - reference).max(initial=0.0)
    scale = np.abs(reference).max(initial=0.0)
    assert error.max_abs == worst
    assert error.passed == bool(worst <= atol + rtol * scale)
    assert math.isfinite(error.max_rel)


@given(floats, floats)
# The quotient of their squares is no float64, though each square is one.
@example(np.array(7e-140), np.array(4.5e22))
@example(np.array([1e130, 1e-100]), np.array([1e130, 2e-100]))
def test_every_result_is_json(reference: np.ndarray, actual: np.ndarray) -> None:
    error = compare(reference, actual, LOOSE, "y")
    assert json.loads(canonical_json(encode(error)))["output"] == "y"
    assert error.passed == (error.reason == "")


@given(integers, st.data())
def test_an_integer_that_differs_fails(reference: np.ndarray, data: st.DataObject) -> None:
    assert compare(reference, reference.copy(), LOOSE, "y").passed
    actual = reference.copy()
    place = data.draw(st.integers(0, reference.size - 1))
    actual.flat[place] ^= 1
    error = compare(reference, actual, Tolerance(atol=10, rtol=10), "y")
    assert (error.passed, error.max_abs) == (False, 1.0)
    assert error.reason == f"1 of {reference.size} values differ"


@given(npst.arrays(np.float32, st.integers(2, 40), elements=st.floats(-10, 10, width=32)))
@settings(max_examples=50)
def test_chunks_change_nothing(array: np.ndarray) -> None:
    actual = array + np.float32(0.25)
    whole = compare(array, actual, LOOSE, "y")
    before = parity.CHUNK
    try:
        parity.CHUNK = 3  # type: ignore[misc]
        parts = compare(array, actual, LOOSE, "y")
    finally:
        parity.CHUNK = before  # type: ignore[misc]
    assert (parts.max_abs, parts.max_rel, parts.passed) == (
        whole.max_abs,
        whole.max_rel,
        whole.passed,
    )
    if whole.cosine is None:
        assert parts.cosine is None
    else:
        assert parts.cosine == pytest.approx(whole.cosine)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("reference", "actual", "count"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0),
        ([INF, -INF], [INF, -INF], 0),
        ([NAN, 1.0], [1.0, NAN], 2),
        ([INF, 1.0], [-INF, 1.0], 1),
        ([INF, 1.0], [NAN, 1.0], 1),
        ([1.0, 1.0], [1.0, INF], 1),
    ],
)
def test_nan_and_infinity_stand_at_the_same_places(
    reference: list[float], actual: list[float], count: int
) -> None:
    error = compare(np.array(reference), np.array(actual), LOOSE, "y")
    assert error.passed == (count == 0)
    assert error.reason == (f"{count} NaN or infinite values differ" if count else "")
    assert error.max_abs == (UNBOUNDED if count else 0.0)


@pytest.mark.parametrize(
    ("reference", "actual", "reason"),
    [
        (np.ones(3, "f4"), np.ones(4, "f4"), "expected float32[3], found float32[4]"),
        (np.ones(3, "f4"), np.ones(3, "f8"), "expected float32[3], found float64[3]"),
        (np.ones(3, "f4"), [np.ones(3, "f4")], "expected float32[3], found list of 1 float32[3]"),
        ([np.ones(3, "f4")], [], "expected list of 1 float32[3], found list of 0"),
        (None, np.ones(3, "f4"), "expected nothing, found float32[3]"),
        ({1: 0.5}, {2: 0.5}, "expected map with keys 1, found 2"),
        ({1: 0.5}, [], "expected map with keys 1, found list of 0"),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), "1 of 2 texts differ"),
        (np.array([True, False]), np.array([True, True]), "1 of 2 values differ"),
        (np.array([0.0, 1.0]), np.array([1.0, 0.0]), "error 1 exceeds 0.011"),
        ([{1: 0.5}], [{1: 0.75}], "error 0.25 exceeds 0.006"),
    ],
)
def test_a_failure_says_why(reference: object, actual: object, reason: str) -> None:
    error = compare(reference, actual, LOOSE, "y")
    assert (error.passed, error.reason) == (False, reason)


def test_a_turned_vector_fails_by_its_cosine() -> None:
    tolerance = Tolerance(atol=0.5, rtol=1.0, min_cosine=0.9)
    error = compare(np.array([1.0, 0.0]), np.array([0.5, 1.0]), tolerance, "y")
    assert error.reason == "cosine 0.447214 is below 0.9"
    # One element has no direction, a zero norm none, and noise below atol none that matters.
    for one, other in (([1.0], [-0.4]), ([0.0, 0.0], [0.1, 0.1]), ([0.4, 0.0], [0.0, 0.4])):
        assert compare(np.array(one), np.array(other), tolerance, "y").passed
    assert compare(np.zeros(2), np.ones(2) / 10, tolerance, "y").cosine is None


def test_numbers_at_the_ends_of_the_range() -> None:
    for size in (1e300, 1e-300):
        vector = np.array([size, -size])
        error = compare(vector, vector, EXACT, "y")
        assert error.passed
        assert error.cosine == pytest.approx(1.0)
    huge = np.array([1.7e308, 0.0])
    error = compare(huge, -huge, LOOSE, "y")
    assert (error.passed, error.max_abs) == (False, UNBOUNDED)


def test_sequences_report_their_worst_item() -> None:
    reference = [np.array([1.0, 1.0]), np.array([4.0, 2.0])]
    actual = [np.array([1.0, 1.0]), np.array([4.0, 2.5])]
    error = compare(reference, actual, LOOSE, "y")
    assert (error.max_abs, error.max_rel, error.passed) == (0.5, 0.125, False)
    assert error.cosine is not None
    assert error.cosine < 1.0
    assert compare([], [], LOOSE, "y").passed


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_narrow_floats_are_compared_as_floats(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    reference = np.array([1.0, 2.0, -3.0]).astype(getattr(ml_dtypes, name))
    actual = np.array([1.0, 2.0, -3.5]).astype(getattr(ml_dtypes, name))
    assert compare(reference, reference, EXACT, "y").passed
    assert compare(reference, actual, LOOSE, "y").max_abs == 0.5


def test_complex_numbers_are_compared_by_part() -> None:
    reference = np.array([1 + 1j, 2 - 1j])
    assert compare(reference, reference + 0.5j, LOOSE, "y").max_abs == 0.5


def test_no_wide_copy_of_a_large_output_is_made() -> None:
    reference = np.ones(1 << 22, np.float32)
    actual = reference + np.float32(1e-6)
    tracemalloc.start()
    error = compare(reference, actual, LOOSE, "y")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.passed
    # Both as float64 would be 64 MiB.
    assert peak < 16 << 20


@pytest.mark.parametrize(
    "error", [2.0**53 + 2, 2.305843009213694e18, 9e20, 1e300, math.inf, math.nan]
)
def test_every_measured_error_is_written_and_read_again(error: float) -> None:
    with np.errstate(all="ignore"):
        found = compare(np.zeros(2), np.array([0.0, error]), EXACT, "y")
    assert not found.passed
    assert found.max_abs == (error if math.isfinite(error) else UNBOUNDED)
    assert decode(OutputError, strict_json(canonical_json(encode(found)))) == found


def test_equal_bits() -> None:
    nan = np.array([math.nan, 1.0])
    assert same_bits([nan, None], [nan.copy(), None])
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert not same_bits(np.zeros(2), np.zeros((2, 1)))
    assert not same_bits([nan], [nan, nan])
    assert same_bits(np.array(["a"], object), np.array(["a"], object))
    assert not same_bits({"a": 1.0}, {"a": 2.0})
