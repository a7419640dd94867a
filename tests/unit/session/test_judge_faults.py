"""Faults from a seed, with which the judge of answers is measured: what they change, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aotc.session.slices import chi_square_quantile
from benchmarks.judge.faults import DROWNED, JUDGED, KINDS, NOISE, Fault, Target, fault
from benchmarks.judge.slices import Scales, Slice, error_at, fill_of, is_exact

Array = np.ndarray[Any, Any]
FILL = np.float32(-1e9)
# Columns of these scales.
SCALES = np.logspace(-3, 3, 6)


def made_fixtures(seed: int = 0, sizes: Sequence[int] = (1, 3, 8, 5)) -> list[Array]:
    """Arrays of float32 [size, 12, 6] whose columns have `SCALES`."""
    rng = np.random.default_rng(seed)
    return [(rng.normal(1, 1, (n, 12, 6)) * SCALES).astype(np.float32) for n in sizes]


def made_target(arithmetic: str = "float16", **fields: Any) -> Target:
    """Answers in which the honest variant is off by 1e-3 of each value."""
    reference = made_fixtures()
    rng = np.random.default_rng(1)
    honest = [
        (each * (1 + rng.normal(0, 1e-3, each.shape))).astype(np.float32) for each in reference
    ]
    noise = [(each * np.float32(1 + 1e-7)) for each in reference]
    return Target(reference, honest, noise, arithmetic, **fields)


def made_faults(kind: str, target: Target, count: int = 20) -> list[Fault]:
    """The faults of that many seeds."""
    found = [fault(kind, target, np.random.default_rng(seed)) for seed in range(count)]
    return [each for each in found if each is not None]


def test_there_are_ten_kinds() -> None:
    assert len(KINDS) == 10


@pytest.mark.parametrize(("arithmetic", "bar"), [("float32", 0.1), ("float16", 0.1), ("int8", 0.3)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_moves_its_slice_by_the_bar_or_more(kind: str, arithmetic: str, bar: float) -> None:
    target = made_target(arithmetic)
    found = made_faults(kind, target)
    assert len(found) >= 15
    assert target.bar == bar
    for each in found:
        assert each.error >= bar
        assert error_at(each.where, target.honest, each.answers, target.fill) >= bar * each.scale
        pooled = np.concatenate([each.where.of(one).ravel() for one in target.reference])
        assert each.scale == pytest.approx(scale_of(pooled))
        assert [one.dtype for one in each.answers] == [one.dtype for one in target.honest]


def scale_of(values: Any) -> float:
    """The upper end of the 99 % interval of a root mean square."""
    found = values.astype(float)
    return float(np.sqrt(np.sum(found**2) / chi_square_quantile(0.01, found.size)))


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"rank lost", "swapped"}))
def test_nothing_else_changes(kind: str) -> None:
    target = made_target()
    for each in made_faults(kind, target):
        for honest, answer in zip(target.honest, each.answers, strict=True):
            restored = answer.copy()
            each.where.of(restored)[...] = each.where.of(honest)
            np.testing.assert_array_equal(restored, honest)


def test_two_slices_are_swapped() -> None:
    target = made_target()
    (first, *_) = made_faults("swapped", target)
    largest = max(target.honest, key=len)
    answer = max(first.answers, key=len)
    changed = [
        at
        for at in range(answer.shape[first.where.axis])
        if (np.take(answer, at, first.where.axis) != np.take(largest, at, first.where.axis)).any()
    ]
    assert len(changed) == 2
    assert first.where.start in changed
    one, two = (np.take(answer, at, first.where.axis) for at in changed)
    np.testing.assert_array_equal(one, np.take(largest, changed[1], first.where.axis))
    np.testing.assert_array_equal(two, np.take(largest, changed[0], first.where.axis))


def test_rank_is_lost() -> None:
    for each in made_faults("rank lost", made_target()):
        largest = max(each.answers, key=len).astype(np.float64)
        ranks = {
            np.linalg.matrix_rank(
                np.moveaxis(largest, axis, -1).reshape(-1, largest.shape[axis]), tol=1e-3
            )
            for axis in range(3)
        }
        assert 1 in ranks


def test_a_seed_gives_the_same_fault_again() -> None:
    target = made_target()
    for kind in KINDS:
        one, two = (fault(kind, target, np.random.default_rng(7)) for _ in range(2))
        assert one is not None
        assert two is not None
        assert one.where == two.where
        for left, right in zip(one.answers, two.answers, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("fill", [FILL, np.float32("-inf"), np.finfo(np.float32).min])
@pytest.mark.parametrize("kind", KINDS)
def test_fill_stays_and_is_no_scale(kind: str, fill: np.float32) -> None:
    reference = [each[:, :, :1] / np.float32(SCALES[0]) for each in made_fixtures()]
    for each in reference:
        each[:, 7:] = fill
    target = Target(reference, reference, reference, "float32")
    found = made_faults(kind, target, 8)
    assert found or kind == "swapped"
    for each in found:
        assert each.scale < 10
        assert each.where.axis != 1 or each.where.start < 7
        for answer in each.answers:
            np.testing.assert_array_equal(answer[:, 7:], np.full_like(answer[:, 7:], fill))


def test_a_large_number_that_is_not_repeated_is_no_fill() -> None:
    (left_out,) = fill_of([np.array([1, 2, 3, 4e9, -5e8, 7e9], np.float32)])
    assert not left_out.any()
    (left_out,) = fill_of([np.array([1, 2, 3, -1e9, -1e9, np.nan], np.float32)])
    assert left_out.tolist() == [False, False, False, True, True, True]


def test_slices_of_noise_and_of_few_elements_get_no_fault() -> None:
    reference = made_fixtures(sizes=(1, 1, 1))
    noise = [each.copy() for each in reference]
    for each in noise:
        each[:, :, 0] *= 1.05
    target = Target(reference, reference, noise, "float32")
    axes = dict(zip(target.wide, target.states, strict=False))
    # The batch has one index; a row of 3 x 6 elements is enough, a column of 3 x 12 too.
    assert axes.keys() == {1, 2}
    assert axes[2].tolist() == [NOISE, *[JUDGED] * 5]
    assert (axes[1] == JUDGED).all()
    # Of one column, the whole output is a slice.
    one = [each[:, :, 1:2] for each in reference]
    assert Target(one, one, one, "float32").counted == [[Slice(0, 0, 1)]]
    few = [each[:, :2, :1] for each in reference]
    assert Target(few, few, few, "float32").counted == []
    assert fault("zeroed", Target(few, few, few, "float32"), np.random.default_rng(0)) is None


def test_slices_on_which_the_arithmetic_is_off_by_half_a_fault_are_drowned() -> None:
    reference = made_fixtures()
    honest = [each.copy() for each in reference]
    for each in honest:
        each[:, :, 2] *= np.float32(1.06)
    target = Target(reference, honest, reference, "float16")
    (columns,) = (s for at, s in zip(target.wide, target.states, strict=True) if at == 2)
    assert columns.tolist() == [JUDGED, JUDGED, DROWNED, JUDGED, JUDGED, JUDGED]
    # In integers a fault is three times as large.
    assert Target(reference, honest, reference, "int8").state(Slice(2, 2, 3)) == JUDGED
    # What the variant is off by at another seed counts as well.
    elsewhere = Scales(reference, honest, fill_of(reference))
    there = Target(reference, reference, reference, "float16", others=[elsewhere])
    assert there.state(Slice(2, 2, 3)) == DROWNED
    assert there.state(Slice(2, 1, 2)) == JUDGED


def test_parts_that_were_joined_are_slices_too() -> None:
    parts = (Slice(2, 0, 2), Slice(2, 2, 6))
    target = made_target(parts=parts)
    assert target.counted[-1] == list(parts)
    found = made_faults("part zeroed", target)
    assert {each.where for each in found} == set(parts)
    for each in found:
        assert not any(each.where.of(answer).any() for answer in each.answers)
    assert str(parts[1]) == "[:, :, 2:6]"


def test_labels_differ_by_a_share_of_their_number() -> None:
    rng = np.random.default_rng(0)
    reference = [rng.integers(0, 9, (2, 20, 10)) for _ in range(3)]
    honest = [each.copy() for each in reference]
    honest[0][0, 0, 0] += 1
    target = Target(reference, honest, honest, "int8")
    assert target.exact
    for kind in KINDS:
        for each in made_faults(kind, target, 6):
            pairs = zip(target.reference, each.answers, strict=True)
            differ = [(each.where.of(one) != each.where.of(two)).ravel() for one, two in pairs]
            assert each.error == pytest.approx(float(np.concatenate(differ).mean()))
            assert each.answers[0].dtype == reference[0].dtype
    assert not made_faults("scaled", target)
    assert not made_faults("negated", target)


@pytest.mark.parametrize(
    ("dtype", "exact"),
    [("int64", True), ("int32", True), ("bool", True), ("uint8", False), ("float32", False)],
)
def test_between_the_values_of_an_image_there_is_a_distance(dtype: str, exact: bool) -> None:
    assert is_exact(np.zeros(1, dtype)) is exact


def test_a_slice_has_the_scale_and_error_of_what_it_holds_in_every_fixture() -> None:
    reference, actual = made_fixtures(0), made_fixtures(1)
    scales = Scales(reference, actual, fill_of(reference))
    for axis in range(3):
        counts, sizes, errors = scales.axes[axis]
        for index in range(len(counts)):
            where = Slice(axis, index, index + 1)
            one = np.concatenate([where.of(each).ravel() for each in reference]).astype(float)
            two = np.concatenate([where.of(each).ravel() for each in actual]).astype(float)
            assert counts[index] == one.size
            assert sizes[index] == pytest.approx(scale_of(one))
            assert errors[index] == pytest.approx(np.sqrt(np.mean((two - one) ** 2)))
            (count,), (size,), (error,) = scales.at(where)
            assert (count, size, error) == pytest.approx(
                (counts[index], sizes[index], errors[index])
            )
