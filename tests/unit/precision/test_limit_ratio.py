"""How far an answer is from its limits: above 1 exactly where it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.precision.blame_search import limit_ratio
from aotc.session.parity import UNBOUNDED, compare
from aotc.spec.precision import OutputGate, Tolerance

TOLERANCE = Tolerance(atol=0.01, rtol=0.1, min_cosine=0.99)
REFERENCE = np.linspace(-2, 2, 40, dtype=np.float32).reshape(4, 10)


def measured(actual: Any, gate: OutputGate | None = None, tolerance: Tolerance = TOLERANCE) -> Any:
    error = compare(REFERENCE, np.asarray(actual, np.float32), tolerance, "y", gate)
    return error, limit_ratio(error, tolerance, gate)


def test_no_error_is_no_badness() -> None:
    assert measured(REFERENCE)[1] == 0.0


def test_an_error_is_divided_by_what_is_allowed() -> None:
    actual = REFERENCE.copy()
    actual[0, 0] += 0.42
    _, found = measured(actual)
    assert found == pytest.approx(0.42 / (0.01 + 0.1 * 2), rel=1e-5)


def test_the_worst_limit_counts() -> None:
    actual = REFERENCE + np.float32(0.01)
    assert measured(actual)[1] < 1
    _, found = measured(actual, OutputGate(max_abs=0.001))
    assert found == pytest.approx(10, rel=1e-3)
    _, found = measured(actual, OutputGate(min_sqnr_db=61.5, max_abs=0.009))
    assert found == pytest.approx(10, rel=0.05), "20 dB more than there are: 10 times the amplitude"


def test_agreement_is_measured_by_what_disagrees() -> None:
    actual = REFERENCE.copy()
    actual[0, 0] = 9
    actual[1, 0] = 9
    error, found = measured(actual, OutputGate(min_agreement=0.75, replaces_tolerance=True))
    assert error.agreement == 0.5
    assert found == 2.0


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nan_and_infinity_are_beyond_measure(wrong: float) -> None:
    actual = REFERENCE.copy()
    actual[0, 0] = wrong
    assert measured(actual)[1] == UNBOUNDED
    assert measured(REFERENCE[:2])[1] == UNBOUNDED


def test_a_limit_of_zero_is_beyond_measure_or_met() -> None:
    gate = OutputGate(max_abs=0.0)
    assert measured(REFERENCE, gate)[1] == 0.0
    assert measured(REFERENCE + np.float32(1e-3), gate)[1] == UNBOUNDED


@given(
    st.floats(0, 2, width=32),
    st.builds(
        OutputGate,
        max_abs=st.none() | st.floats(0, 2),
        max_rel=st.none() | st.floats(0, 2),
        min_cosine=st.none() | st.floats(-1, 1),
        min_sqnr_db=st.none() | st.floats(-20, 120),
        min_agreement=st.none() | st.floats(0, 1),
    ),
    st.integers(0, 99),
)
@settings(max_examples=200, deadline=None)
def test_it_is_above_one_exactly_where_the_answer_fails(
    scale: float, gate: OutputGate, seed: int
) -> None:
    noise = np.random.default_rng(seed).standard_normal(REFERENCE.shape).astype(np.float32)
    error, found = measured(REFERENCE + noise * np.float32(scale), gate)
    assert (found <= 1.0) == error.passed
