"""Slices of outputs are judged by their own scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotc.session.limits import FORM
from aotc.session.parity import SLICE, TOLERANCE, Beside, compare
from aotc.session.slices import (
    Fill,
    SliceLimits,
    SlicePool,
    chi_square_quantile,
    find_fill,
)
from aotc.spec.evidence import OutputError
from aotc.spec.parted import LayoutStep, PartedAxis
from aotc.spec.precision import Arithmetic, OutputGate, ParitySpec, Tolerance

Array = np.ndarray[Any, Any]
PARITY = ParitySpec()


def detections(seed: int = 0, boxes: int = 1024) -> Array:
    """Boxes in pixels and scores in one tensor, of shape (2, 84, boxes)."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.uniform(0, 640, (2, 4, boxes)), rng.uniform(0, 0.05, (2, 80, boxes))], axis=1
    ).astype(np.float32)


def judged(
    reference: Array, actual: Array, tolerance: Tolerance, beside: Beside | None = None
) -> OutputError:
    return compare(
        reference, actual.astype(reference.dtype), tolerance, "y", None, beside or Beside()
    )


def test_scores_that_are_lost_beside_boxes_are_refused() -> None:
    reference = detections()
    lost = reference.copy()
    lost[:, 4:] = 0
    error = judged(reference, lost, PARITY.int8)
    assert error.breached == (SLICE,)
    assert error.worst_slice is not None
    assert error.worst_slice.axis == 1
    assert 4 <= error.worst_slice.first < 84
    assert error.worst_slice.scale < 0.02
    assert "axis 1, index" in error.reason
    assert judged(reference, reference * np.float32(1.001), PARITY.int8).passed


FAULTS: dict[str, Callable[[Array], Array]] = {
    "zeroed": lambda part: np.zeros_like(part),
    "sign": lambda part: -part,
    "constant": lambda part: np.full_like(part, part.mean()),
    "moved": lambda part: part + np.float32(0.45) * part.std(),
    "scaled": lambda part: part * np.float32(1.4),
    "shifted": lambda part: np.roll(part, 1, axis=-1),
    "noise": lambda part: (
        np.random.default_rng(1).permutation(part.reshape(-1)).reshape(part.shape)
    ),
}


@pytest.mark.parametrize("arithmetic", ["float32", "float16", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_channel_is_seen(fault: str, arithmetic: str) -> None:
    reference = detections()
    faulty = reference.copy()
    faulty[:, 17] = FAULTS[fault](faulty[:, 17])
    error = judged(reference, faulty, getattr(PARITY, arithmetic))
    assert SLICE in error.breached
    assert error.worst_slice is not None
    assert (error.worst_slice.axis, error.worst_slice.first) == (1, 17)


@pytest.mark.parametrize("arithmetic", ["float32", "float16", "bfloat16", "int8"])
def test_random_scores_under_a_fill_are_refused(arithmetic: str) -> None:
    rng = np.random.default_rng(3)
    for number in (-1e9, -65504.0, float(np.finfo(np.float32).min), -np.inf, -1e4):
        reference = rng.normal(size=(4, 8, 32, 32)).astype(np.float32)
        reference[:, :, np.tril_indices(32, -1)[0], np.tril_indices(32, -1)[1]] = number
        wrong = np.where(reference < -1e3, reference, rng.normal(size=reference.shape))
        error = judged(reference, wrong, getattr(PARITY, arithmetic))
        assert not error.passed, number
        honest = np.where(reference < -1e3, reference, reference + np.float32(1e-6))
        assert judged(reference, honest, PARITY.float32).passed


def test_fill_must_stay_fill() -> None:
    reference = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    reference[:, :9] = -1e9
    for number in (0.0, -1e8, 1e9, -1.2e9):
        wrong = reference.copy()
        wrong[5, 3] = number
        error = judged(reference, wrong, PARITY.float32)
        assert error.breached == (TOLERANCE,), number
        assert "fill" in error.reason
    wrong = reference.copy()
    wrong[5, 3] = -np.inf
    assert judged(reference, wrong, PARITY.float32).breached == (FORM,)
    wrong = reference.copy()
    # A value where the reference has one, and the variant fill.
    wrong[5, 60] = -1e9
    assert TOLERANCE in judged(reference, wrong, PARITY.float32).breached


def test_numbers_that_repeat_are_no_scale() -> None:
    rng = np.random.default_rng(0)
    reference = np.full((16, 256), -1, np.float32)
    reference[:, :20] = rng.uniform(0.010, 0.011, (16, 20))
    flat = reference.copy()
    flat[:, :20] = 0.0105
    assert judged(reference, flat, PARITY.float16).breached == (SLICE,)


def test_what_is_fill() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(32, 64)).astype(np.float32)
    assert find_fill(values) == Fill()
    assert find_fill(np.maximum(values, 0)).numbers == (0.0,)
    assert find_fill(np.where(values > 1, -1, values)).numbers == (-1.0,)
    # Scores that a mask of -10000 was added to, and one with two masks.
    assert 10 < find_fill(np.where(values > 1, values - 1e4, values)).far < 9000
    assert 10 < find_fill(np.where(values > 1, -1e9 * np.rint(values), values)).far < 1e9
    # Boxes beside scores are no fill, nor are the levels of an integer.
    assert find_fill(detections()) == Fill()
    levels = find_fill(np.rint(values * 40) / 40)
    assert (levels.numbers, levels.far) == ((), np.inf)
    assert levels.step == pytest.approx(1 / 40, rel=1e-3)
    assert find_fill(np.zeros((3, 4))) == Fill()
    assert find_fill(np.full(7, np.nan)) == Fill()


def test_a_value_that_is_small_by_chance_borrows_the_scale_of_all() -> None:
    rng = np.random.default_rng(5)
    for seed in range(20):
        reference = np.random.default_rng(seed).normal(size=(1, 1000)).astype(np.float32)
        honest = reference + rng.normal(0, 2e-3, reference.shape)
        assert judged(reference, honest, PARITY.float16).passed


def test_a_column_of_one_value_in_each_call_is_seen_over_all_calls() -> None:
    rng = np.random.default_rng(7)
    scales = np.array([640, 1, 0.01, 100], np.float32)
    pool = SlicePool()
    for _ in range(20):
        reference = (rng.normal(size=(1, 4)) * scales).astype(np.float32)
        lost = reference.copy()
        lost[:, 2] = 0
        assert judged(reference, lost, PARITY.int8, Beside(pool=pool)).passed
    worst = pool.worst()["y"]
    assert (worst.axis, worst.first, worst.values) == (1, 2, 20)
    assert worst.ratio > 1


def test_samples_that_are_repeated_count_once() -> None:
    """A batch of one sample says nothing of the scale of a column, in one call or in many."""
    rng = np.random.default_rng(0)
    sample = rng.normal(size=(3, 10)).astype(np.float32)
    error = rng.normal(0, 0.05, sample.shape).astype(np.float32)
    pool = SlicePool()
    for times in (10, 64, 341):
        reference, actual = np.tile(sample, (times, 1)), np.tile(sample + error, (times, 1))
        assert judged(reference, actual, PARITY.int8, Beside(pool=pool)).passed
    assert pool.worst() == {}
    # One of them that is answered otherwise is not one of them.
    reference, actual = np.tile(sample, (64, 1)), np.tile(sample + error, (64, 1))
    actual[100:] = 0
    assert not judged(reference, actual, PARITY.int8).passed


def test_calls_of_several_sizes_are_pooled_by_the_axes_that_stay() -> None:
    rng = np.random.default_rng(8)
    pool = SlicePool()
    for batch in (1, 2, 5):
        reference = rng.normal(size=(batch, 6)).astype(np.float32)
        judged(reference, reference + np.float32(1e-7), PARITY.float32, Beside(pool=pool))
    assert pool.worst()["y"].ratio < 1
    assert SlicePool().worst() == {}


@pytest.mark.parametrize("arithmetic", ["float32", "float16", "int8"])
def test_noise_of_the_original_is_no_breach(arithmetic: str) -> None:
    """A channel that is nothing but rounding, in the original too."""
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(64, 8))
    exact[:, 3] = 0
    noise = np.zeros_like(exact)
    noise[:, 3] = rng.normal(0, 1e-7, 64)
    reference = (exact + noise).astype(np.float32)
    actual = exact + rng.normal(0, 1e-7, exact.shape)
    tolerance = getattr(PARITY, arithmetic)
    assert judged(reference, actual, tolerance).breached == (SLICE,)
    beside = Beside(second=exact.astype(np.float32), arithmetic=cast("Arithmetic", arithmetic))
    assert judged(reference, actual, tolerance, beside).passed
    # That is no excuse for a channel that is lost.
    lost = reference.copy()
    lost[:, 5] = 0
    assert judged(reference, lost, tolerance, beside).breached[-1] == SLICE


def test_parts_that_the_graph_joins_are_slices() -> None:
    """Flattened, each column has one value, and no axis tells boxes from scores."""
    reference = detections(boxes=64)[:1].reshape(1, -1)
    lost = reference.copy()
    lost[:, 4 * 64 :] = 0
    assert judged(reference, lost, PARITY.int8).passed
    steps = (LayoutStep(kind="reshape", dims=(-2, 84, -1)),)
    part = PartedAxis(node="join", steps=steps, axis=1, starts=(0, 4))
    error = judged(reference, lost, PARITY.int8, Beside(parted=(part,)))
    assert error.breached == (SLICE,)
    assert error.worst_slice is not None
    assert error.worst_slice.place == "axis 1, indices 4.. of join"
    # A shape that the steps do not fit is passed over.
    other = PartedAxis(
        node="join", steps=(LayoutStep(kind="reshape", dims=(5, -1)),), axis=1, starts=(0, 4)
    )
    assert judged(reference, lost, PARITY.int8, Beside(parted=(other,))).passed


def test_axes_that_a_reshape_joined_are_slices() -> None:
    """Channels last and flattened, twice: the scores of the second half are lost."""
    reference = np.moveaxis(detections(boxes=64), 1, 2).reshape(1, -1)
    lost = reference.copy().reshape(2, -1, 84)
    lost[1, :, 4:] = 0
    lost = lost.reshape(1, -1)
    assert judged(reference, lost, PARITY.int8).passed
    half = reference.size // 2
    for start, passed in ((0, True), (half, False), (2 * half, True)):
        steps = (
            LayoutStep(kind="slice", dims=(1, start, start + half)),
            LayoutStep(kind="reshape", dims=(-1, 84)),
        )
        part = PartedAxis(node="flatten", steps=steps, axis=1, starts=(0,))
        error = judged(reference, lost, PARITY.int8, Beside(parted=(part,)))
        assert error.passed == passed, start
    assert judged(reference, reference * np.float32(1.001), PARITY.int8).passed


def test_a_gate_names_the_axis() -> None:
    reference = detections()
    lost = reference.copy()
    lost[:, 17] = 0
    for axis, passed in ((1, False), (-2, False), (2, True), (0, True), (None, False), (7, False)):
        error = compare(reference, lost, PARITY.int8, "y", OutputGate(axis=axis))
        assert error.passed == passed, axis
    replaced = OutputGate(replaces_tolerance=True, max_abs=1)
    assert compare(reference, lost, PARITY.int8, "y", replaced).passed


def test_shares_of_one_sum_have_one_scale() -> None:
    """The rarest of them drown in bfloat16, and matter to nobody."""
    rng = np.random.default_rng(0)
    scores = np.exp(rng.normal(0, 4, (64, 50)))
    scores[:, :3] *= 1e-5
    reference = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
    actual = reference.copy()
    actual[:, :3] *= rng.uniform(0.2, 1.8, (64, 3)).astype(np.float32)
    assert judged(reference, actual, PARITY.bfloat16).passed
    assert not judged(reference * 2, actual * 2, PARITY.bfloat16).passed
    actual[:, 20] = 0
    assert judged(reference, actual, PARITY.bfloat16).breached[-1] == SLICE


def test_a_number_below_the_smallest_of_float16_may_be_lost_in_it() -> None:
    reference = (np.random.default_rng(0).normal(size=(64, 64)) * 1e-8).astype(np.float32)
    lost = np.zeros_like(reference)
    for arithmetic, passed in (("float16", True), ("bfloat16", False)):
        beside = Beside(second=reference, arithmetic=arithmetic)  # type: ignore[arg-type]
        assert judged(reference, lost, PARITY.bfloat16, beside).passed == passed


def test_an_output_of_a_tiny_scale_may_not_be_lost() -> None:
    """It is within `atol` of 0."""
    reference = (np.random.default_rng(0).normal(size=(16, 16)) * 1e-6).astype(np.float32)
    for tolerance in (PARITY.float32, PARITY.float16, PARITY.int8):
        assert judged(reference, np.zeros_like(reference), tolerance).breached == (SLICE,)


def test_zeros_have_no_scale() -> None:
    zeros = np.zeros((16, 16), np.float32)
    assert judged(zeros, zeros + np.float32(1e-6), PARITY.float32).passed
    reference = np.random.default_rng(0).normal(size=(64, 300)).astype(np.float32)
    reference[:, 3] = 0
    actual = reference.copy()
    actual[:, 3] = 1e-4
    assert judged(reference, actual, PARITY.float32).passed


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_numbers_of_any_size_are_judged_alike(scale: float) -> None:
    reference = detections().astype(np.float64) * scale
    lost = reference.copy()
    lost[:, 17] = 0
    loose = Tolerance(atol=0, rtol=1, min_cosine=-1, max_slice=0.2)
    assert judged(reference, lost, loose).breached == (SLICE,)
    assert judged(reference, reference * 1.001, loose).passed


@given(st.floats(1e-6, 0.05), st.integers(1, 500))
def test_quantiles_are_those_of_the_distribution(level: float, freedom: int) -> None:
    """By its series: the chance to be below the quantile is the level, within a few per cent."""
    import math

    half, value = freedom / 2, chi_square_quantile(level, freedom) / 2
    term = total = 1.0
    for k in range(1, 2000):
        term *= value / (half + k)
        total += term
    chance = total * math.exp(half * math.log(value) - value - math.lgamma(half + 1))
    assert 0.4 * level < chance < 1.3 * level


def test_limits_follow_from_the_tolerance() -> None:
    shares = {
        name: SliceLimits.of(getattr(PARITY, name)).share
        for name in ("float32", "float16", "tf32", "bfloat16", "quantized", "int8", "int4")
    }
    assert shares == {
        "float32": 0.01,
        "float16": 0.02,
        "tf32": 0.02,
        "bfloat16": 0.04,
        "quantized": 0.2,
        "int8": 0.12,
        "int4": 0.25,
    }
    assert SliceLimits.of(Tolerance(atol=0, rtol=0.5)).share == 0.5
