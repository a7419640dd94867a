"""Slices of an output over all fixtures, and how large what they hold is.

A slice is what an output holds at one index of one axis, or at several in a row, in every fixture
that is long enough.  Its scale is the root mean square of the reference there, without fill: what
is not finite, and what is repeated and a million times as large as the rest; at the upper end of
its 99 % confidence interval, as few values leave it open (16 values 1.7 times, 1000 1.05 times).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from aotc.session.slices import chi_square_quantile

Array = np.ndarray[Any, Any]
# Fewer elements show no scale: in all fixtures together, or in each along an axis of free size.
LEAST_ELEMENTS: Final = 16
# What is known of a scale: the upper end of its interval at this level counts.
_LEVEL: Final = 0.01
_FILL_FACTOR: Final = 1e6
_FILL_VALUES: Final = 2


@dataclass(frozen=True, slots=True)
class Slice:
    """Indices `start` up to but excluding `stop` of an axis."""

    axis: int
    start: int
    stop: int

    def __str__(self) -> str:
        """As numpy's users write it."""
        each = f"{self.start}" if self.stop == self.start + 1 else f"{self.start}:{self.stop}"
        return "[" + ":, " * self.axis + each + "]"

    def of(self, array: Array) -> Array:
        """A view of what one fixture has of it."""
        found: Array = array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]
        return found


def is_exact(array: Array) -> bool:
    """Whether values are labels, indices or truths, between which there is no distance."""
    return array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype.itemsize > 1)


def fill_of(arrays: Sequence[Array]) -> list[Array]:
    """By fixture, which values of an output are fill."""
    if arrays[0].dtype.kind != "f":
        return [np.zeros(each.shape, bool) for each in arrays]
    pooled = np.concatenate([each.ravel() for each in arrays])
    sizes = np.abs(pooled[np.isfinite(pooled) & (pooled != 0)])
    most = float(np.median(sizes)) * _FILL_FACTOR if sizes.size else np.inf
    large = pooled[np.isfinite(pooled) & (np.abs(pooled) > most)]
    if large.size < 2 or len(np.unique(large)) > _FILL_VALUES:
        most = np.inf
    return [~np.isfinite(each) | (np.abs(each) > most) for each in arrays]


class Scales:
    """Of one output: elements, scale and root mean square error of every index of every axis.

    `reference` and `actual` are by fixture.  Of labels and truths the error is the share that
    differs, and the scale 1.
    """

    def __init__(
        self, reference: Sequence[Array], actual: Sequence[Array], fill: Sequence[Array]
    ) -> None:
        self._exact = is_exact(reference[0])
        self._squares = [_squares(one) for one in reference]
        self._errors = [_errors(one, two) for one, two in zip(reference, actual, strict=True)]
        self._kept = [~each for each in fill]
        self.least: list[Array] = []
        """By axis: how many elements each slice must have."""
        self.axes: list[tuple[Array, Array, Array]] = []
        self._shared: dict[int, float] = {}
        for axis in range(reference[0].ndim):
            size = max(each.shape[axis] for each in reference)
            sums = np.zeros((3, size))
            extents = [each.shape[axis] for each in reference]
            there_are = (np.array(extents)[:, None] > np.arange(size)).sum(axis=0)
            free = len(set(extents)) > 1
            self.least.append(LEAST_ELEMENTS * (there_are if free else np.ones(size, int)))
            for parts in zip(self._kept, self._squares, self._errors, strict=True):
                others = tuple(at for at in range(parts[0].ndim) if at != axis)
                for total, values in zip(sums, parts, strict=True):
                    there = np.where(parts[0], values, 0.0).sum(axis=others)
                    total[: len(there)] += there
            found = self._measured(sums)
            if all(_is_distribution(each, axis) for each in reference):
                # Shares of one sum are one thing: the rarest has no scale of its own.
                whole = np.sqrt((found[0] * found[1] ** 2).sum() / max(found[0].sum(), 1))
                self._shared[axis] = float(whole)
            self.axes.append(self._with_shared(found, axis))

    def at(self, where: Slice) -> tuple[Array, Array, Array]:
        """Elements, scale and error of one slice, each an array of one."""
        sums = np.zeros((3, 1))
        for parts in zip(self._kept, self._squares, self._errors, strict=True):
            kept = where.of(parts[0])
            for total, values in zip(sums, parts, strict=True):
                total += np.where(kept, where.of(values), 0.0).sum()
        return self._with_shared(self._measured(sums), where.axis)

    def _with_shared(
        self, found: tuple[Array, Array, Array], axis: int
    ) -> tuple[Array, Array, Array]:
        return found[0], np.maximum(found[1], self._shared.get(axis, 0.0)), found[2]

    def _measured(self, sums: Array) -> tuple[Array, Array, Array]:
        count = np.maximum(sums[0], 1)
        errors = sums[2] / count
        if self._exact:
            return sums[0], np.sqrt(sums[1] / count), errors
        upper = np.array([_upper(each) for each in count.tolist()])
        return sums[0], np.sqrt(sums[1] / count) * upper, np.sqrt(errors)


@cache
def _upper(count: float) -> float:
    """The upper end of the interval of a root mean square of `count` values, beside it."""
    return float(np.sqrt(count / chi_square_quantile(_LEVEL, count)))


def _is_distribution(array: Array, axis: int) -> bool:
    if array.shape[axis] < 2 or array.dtype.kind != "f" or not array.size:
        return False
    shares = array.astype(np.float64)
    total: Array = shares.sum(axis=axis)
    return bool((shares >= 0).all() and (np.abs(total - 1) < 0.01).all())


def error_at(
    where: Slice, reference: Sequence[Array], actual: Sequence[Array], fill: Sequence[Array]
) -> float:
    """The root mean square error of one slice, without fill; of labels the share that differs."""
    count, total = 0, 0.0
    for one, two, left_out in zip(reference, actual, fill, strict=True):
        kept = ~where.of(left_out)
        count += int(kept.sum())
        total += float(_errors(where.of(one)[kept], where.of(two)[kept]).sum())
    error = total / max(count, 1)
    return float(error if is_exact(reference[0]) else error**0.5)


def _squares(array: Array) -> Array:
    if is_exact(array):
        return np.ones(array.shape)
    with np.errstate(all="ignore"):
        squares = array.astype(np.float64) ** 2
    finite: Array = np.where(np.isfinite(squares), squares, 0.0)
    return finite


def _errors(reference: Array, actual: Array) -> Array:
    """Squared errors; of two equal infinities 0, and of one 1e300."""
    if is_exact(reference):
        return np.asarray(reference != actual, np.float64)
    with np.errstate(all="ignore"):
        squares = (actual.astype(np.float64) - reference.astype(np.float64)) ** 2
    equal = (reference == actual) | (np.isnan(reference) & np.isnan(actual))
    errors: Array = np.where(equal, 0.0, np.where(np.isfinite(squares), squares, 1e300))
    return errors
