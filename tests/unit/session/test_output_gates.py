"""Gates of outputs: what is measured for them, and what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from aotc.session.limits import judged_limits
from aotc.session.parity import compare
from aotc.spec.codec import ParseError, decode
from aotc.spec.evidence import OutputError
from aotc.spec.precision import OutputGate, Tolerance

LOOSE = Tolerance(atol=1e-2, rtol=1e-2, min_cosine=0.9)
TIGHT = Tolerance(atol=1e-6, rtol=1e-6, min_cosine=0.9)


def _error(reference: Any, actual: Any, tolerance: Tolerance = LOOSE, **gate: Any) -> OutputError:
    return compare(reference, actual, tolerance, "y", OutputGate(**gate) if gate else None)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-100, 1.0, 1e100, 1e160, 1e300])
def test_the_sqnr_does_not_depend_on_the_scale(scale: float) -> None:
    reference = np.array([3.0, -4.0, 0.0, 5.0]) * scale
    actual = reference * (1 + 1e-3)
    assert _error(reference, actual).sqnr_db == pytest.approx(60.0, abs=1e-6)


def test_the_sqnr_is_that_of_its_formula_over_many_chunks() -> None:
    random = np.random.default_rng(7)
    reference = random.normal(size=(3, 200_001)).astype(np.float32)
    actual = reference + random.normal(scale=1e-3, size=reference.shape).astype(np.float32)
    difference = actual.astype(np.float64) - reference
    expected = 10 * math.log10(np.sum(reference.astype(np.float64) ** 2) / np.sum(difference**2))
    assert _error(reference, actual).sqnr_db == pytest.approx(expected, rel=1e-9)


def test_the_sqnr_of_an_error_beyond_the_largest_number_is_finite() -> None:
    reference = np.array([1.7e308, -1.7e308])
    found = _error(reference, -reference)
    assert found.sqnr_db == pytest.approx(-20 * math.log10(2))
    assert not found.passed


def test_the_sqnr_of_an_error_far_below_the_signal_is_finite() -> None:
    found = _error(np.array([1.0, 1e-200]), np.array([1.0, 2e-200]))
    assert found.sqnr_db == pytest.approx(4000.0)


def test_without_error_or_signal_there_is_no_sqnr() -> None:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    assert _error(ones, ones).sqnr_db is None
    assert _error(zeros, ones).sqnr_db is None
    assert _error(zeros, zeros, min_sqnr_db=40.0, min_cosine=0.9).passed


def test_a_limit_that_is_not_defined_is_passed_without_error_alone() -> None:
    zeros, small = np.zeros(4, np.float32), np.full(4, 1e-3, np.float32)
    assert _error(zeros, small).passed
    found = _error(zeros, small, min_sqnr_db=-1000.0)
    assert (found.passed, found.breached) == (False, ("min_sqnr_db",))
    assert found.reason == (
        "SQNR >= -1000 dB: cannot be judged: the reference or the answer is zero throughout"
    )
    assert _error(small, zeros, min_cosine=-1.0).breached == ("min_cosine",)


def test_all_limits_that_fail_are_told_after_the_tolerance() -> None:
    reference = np.array([1.0, 2.0, 4.0], np.float32)
    actual = np.array([1.0, 2.0, 3.0], np.float32)
    found = _error(
        reference, actual, TIGHT, max_abs=0.5, max_rel=0.3, min_sqnr_db=40.0, min_cosine=0.9
    )
    assert found.breached == ("tolerance", "max_abs", "min_sqnr_db")
    assert found.reason == "error 1 exceeds 5e-06"
    found = _error(reference, actual, max_abs=0.5, min_sqnr_db=40.0, replaces_tolerance=True)
    assert found.reason == "max absolute error <= 0.5: 1; SQNR >= 40 dB: 13.22 dB"


def test_instead_leaves_the_tolerance_out() -> None:
    reference = np.array([1.0, 2.0, 4.0], np.float32)
    actual = np.array([1.0, 2.0, 3.0], np.float32)
    assert not _error(reference, actual, TIGHT, max_abs=2.0).passed
    found = _error(reference, actual, TIGHT, max_abs=2.0, replaces_tolerance=True)
    assert (found.passed, found.reason, found.breached) == (True, "", ())


@pytest.mark.parametrize(
    "actual", [np.ones((2, 2)), np.ones(4, np.float32), np.array([1.0, np.nan, 1.0, 1.0])]
)
def test_instead_does_not_excuse_what_cannot_be_compared(actual: Any) -> None:
    found = _error(np.ones(4), actual, replaces_tolerance=True, max_abs=1e9)
    assert (found.passed, found.breached[0]) == (False, "form")


def test_rows_agree_by_their_largest_value() -> None:
    reference = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 3.0], [0.0, 1.0, 2.0], [9.0, 1.0, 1.0]])
    actual = np.array([[1.0, 3.1, 2.0], [4.0, 5.0, 3.0], [2.0, 1.0, 0.0], [9.0, 9.0, 1.0]])
    assert _error(reference, actual, min_agreement=0.5).agreement == 0.5
    assert _error(reference, actual, min_agreement=0.5, top_k=2).agreement == 0.75
    assert _error(reference, actual).agreement is None


def test_equal_values_of_an_answer_agree_by_their_position_alone() -> None:
    reference = np.eye(4, dtype=np.float32)
    zeros = np.zeros((4, 4), np.float32)
    assert _error(reference, zeros, min_agreement=0.9).agreement == 0.25
    assert _error(reference, zeros, min_agreement=0.9, top_k=2).agreement == 0.5


def test_any_of_equal_largest_values_of_the_reference_agrees() -> None:
    reference = np.array([[2.0, 2.0, 1.0]])
    assert _error(reference, np.array([[2.0, 2.01, 1.0]]), min_agreement=1.0).agreement == 1
    assert _error(reference, np.array([[2.0, 2.0, 2.01]]), min_agreement=1.0).agreement == 0


def test_rows_with_nan_count_nowhere_and_infinities_are_large() -> None:
    nan, inf = np.nan, np.inf
    reference = np.array([[nan, 1.0], [inf, 1.0], [-inf, 1.0]])
    actual = np.array([[nan, 0.0], [inf, 1.0], [-inf, 1.0]])
    assert _error(reference, actual, min_agreement=1.0).agreement == 1


def test_many_rows_are_counted_over_several_chunks() -> None:
    reference = np.random.default_rng(3).normal(size=(700, 1000)).astype(np.float32)
    actual = reference.copy()
    actual[:70, 0] = 100.0
    assert np.all(reference[:70].argmax(axis=1) != 0)
    assert _error(reference, actual, min_agreement=0.95).agreement == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("value", "top_k"),
    [(np.float32(1), 1), (np.ones((3, 1), np.float32), 1), (np.ones((2, 5), np.float32), 5)],
)
def test_rows_that_cannot_disagree_are_not_counted(value: Any, top_k: int) -> None:
    found = _error(value, value, min_agreement=1.0, top_k=top_k)
    assert (found.agreement, found.passed) == (None, True)
    (limit,) = judged_limits(found, OutputGate(min_agreement=1.0, top_k=top_k))
    assert limit.undecided == f"no row has more than {top_k} values that are numbers"


def test_labels_agree_where_they_are_equal() -> None:
    reference, actual = np.arange(10), np.arange(10)
    actual[3] = 7
    assert _error(reference, actual).breached == ("tolerance",)
    assert not _error(reference, actual, min_agreement=0.9).passed
    assert _error(reference, actual, min_agreement=0.9, replaces_tolerance=True).passed
    assert not _error(reference, actual, min_agreement=0.95, replaces_tolerance=True).passed


def test_texts_agree_where_they_are_equal() -> None:
    reference = np.array(["cat", "dog", "owl", "cat"], dtype=object)
    actual = np.array(["cat", "dog", "owl", "dog"], dtype=object)
    assert _error(reference, actual, min_agreement=0.75, replaces_tolerance=True).passed
    found = _error(reference, actual, min_agreement=0.8, replaces_tolerance=True)
    assert found.reason == "argmax agreement >= 0.8: 0.7500"


def test_integers_have_a_cosine_and_a_sqnr_where_a_gate_asks() -> None:
    reference = np.array([100, 50, 0], np.uint8)
    actual = np.array([99, 50, 0], np.uint8)
    assert _error(reference, actual).sqnr_db is None
    found = _error(reference, actual, min_sqnr_db=40.0, replaces_tolerance=True)
    assert (found.passed, found.sqnr_db) == (True, pytest.approx(10 * math.log10(12500)))


def test_rows_of_maps_count_together() -> None:
    reference = [{0: 0.1, 1: 0.9}, {0: 0.6, 1: 0.4}, {0: 0.51, 1: 0.49}, {0: 0.7, 1: 0.3}]
    actual = [*reference[:2], {0: 0.49, 1: 0.51}, reference[3]]
    found = _error(reference, actual, Tolerance(atol=0.1, rtol=0), min_agreement=0.75)
    assert (found.passed, found.agreement) == (True, 0.75)


def test_values_that_are_not_finite_are_counted_and_nothing_else_is_no_pass() -> None:
    reference = np.array([1.0, np.nan, np.inf, 2.0])
    found = _error(reference, reference, max_abs=0.0)
    assert (found.passed, found.non_finite_share) == (True, 0.5)
    nothing = np.full(4, np.nan)
    assert _error(nothing, nothing).passed
    found = _error(nothing, nothing, max_abs=0.0)
    assert (found.passed, found.breached) == (False, ("max_abs",))
    assert found.reason == (
        "max absolute error <= 0: cannot be judged: all values of the reference are NaN or infinite"
    )


def test_an_empty_output_passes() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert _error(empty, empty, min_sqnr_db=40.0, min_agreement=1.0, max_abs=0.0).passed


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "complex64"])
def test_every_type_of_numbers_is_measured(dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    reference = np.array([[1.0, 2.0, 4.0]]).astype(kind)
    actual = np.array([[1.0, 2.0, 4.5]]).astype(kind)
    found = _error(reference, actual, min_sqnr_db=10.0, replaces_tolerance=True)
    assert (found.passed, found.sqnr_db) == (True, pytest.approx(10 * math.log10(84)))


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        (
            {"replaces_tolerance": True},
            "replaces_tolerance: nothing would be judged: state a limit",
        ),
        ({"top_k": 5, "max_abs": 1.0}, "top_k: has no effect without min_agreement"),
    ],
)
def test_a_gate_without_effect_is_refused(stated: Any, problem: str) -> None:
    with pytest.raises(ParseError) as refused:
        decode(OutputGate, stated)
    assert problem in str(refused.value)
