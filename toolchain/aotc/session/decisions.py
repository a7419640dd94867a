"""Judges outputs of whole numbers and truth values by what decided them: how many may differ.

A value that differs is excused where the reference decided it so narrowly that an error of the
deciding floats within the tolerance explains it, and only as long as few values differ:

- `choice`, `threshold`, `other`: at most the share that the arithmetic allows;
- `places`: at most that share is missing, and as many are added;
- `ranking`: at most half of those in a row are not among the reference's, and at most nine in ten
  at another rank but for ties: one swap moves all ranks between;
- `rounded`, `count`: each by at most one step beyond the tolerance, and on average by at most that
  share of a step, or by a quarter of the tolerance where that is more: they measure.

An answer of one value throughout is none where the reference has others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np

from aotc.base.records import record, replace
from aotc.graph.values import Data
from aotc.session.parity import TOLERANCE
from aotc.spec.evidence import OutputError
from aotc.spec.precision import Decided, DecidedOutput, Tolerance

Array = np.ndarray[Any, Any]
_MEASURES: Final = frozenset({"rounded", "count"})
_RANKED_SHARE: Final = 0.5
_MOVED: Final = 0.9
# How the reference decided a value that differs.
CLEARLY, NARROWLY, TIED = 0, 1, 2
_MEAN_SHARE: Final = 0.25
# So many values may be judged with one that differs, where nothing is known of its margin; and an
# answer of one value throughout hides so many.
_FEW: Final = 8
# Rare values of which no more than this share is kept are lost.
_LEAST_KEPT: Final = 1 / 3
_VALUES: Final[Mapping[Decided, str]] = {
    "choice": "choices",
    "ranking": "ranked indices",
    "rounded": "rounded values",
    "threshold": "truth values",
    "count": "counts",
    "places": "places",
    "other": "whole numbers",
}


class Margins(Protocol):
    """What the reference says of how narrowly it decided the values of one output."""

    def values(self, actual: Array) -> Array | None:
        """How each element of `actual` was decided: clearly otherwise, narrowly, or by a tie.

        CLEARLY, NARROWLY or TIED; None if that is not known.
        """

    def places(self, places: Array) -> Array | None:
        """Which of some places, one a row, may be listed or not; None if that is not known."""


@record(kw_only=False)
class Judge:
    """Judges one output; without `margins` by how many values differ, and by how much, alone.

    Of few values none may then differ, unless someone else still `asks` how they were decided.
    """

    stated: DecidedOutput
    margins: Margins | None = None
    asks: bool = False

    def __call__(
        self, reference: Data, actual: Data, tolerance: Tolerance, error: OutputError
    ) -> OutputError:
        """`error`, as the tolerance alone judges it, by the output's own rule.

        Whole numbers that are answered as floats pass by either.
        Values of another kind, type or shape stay what they are; lists of places may be of other
        lengths.
        """
        if not isinstance(reference, np.ndarray) or not isinstance(actual, np.ndarray):
            return error
        if reference.dtype != actual.dtype or reference.dtype.kind not in "biuf":
            return error
        if self.stated.kind == "places":
            return self._places(reference, actual, tolerance, error)
        if reference.shape != actual.shape:
            return error
        if reference.dtype.kind == "f":
            if error.passed:
                return error
            actual = _snapped(reference, actual, tolerance)
        return self._values(reference, actual, tolerance, error)

    def _values(
        self, reference: Array, actual: Array, tolerance: Tolerance, error: OutputError
    ) -> OutputError:
        # A NaN is equal to a NaN.
        differ = (reference != actual) & ~((reference != reference) & (actual != actual))
        count, size = int(np.count_nonzero(differ)), reference.size
        allowed, wrong = self._allowed(size), ""
        if not count:
            pass
        elif self.stated.kind in _MEASURES:
            allowed, wrong = self._measured(reference, actual, tolerance)
        elif self.stated.kind == "ranking":
            missing = _missing(reference, actual)
            wrong = f"{missing} are not among the reference's" if missing > allowed else ""
        else:
            wrong = f"more than {allowed}" if count > allowed else ""
        if count and not wrong:
            wrong = _hidden(reference, actual)
            if not wrong and self.stated.kind not in (*_MEASURES, "ranking"):
                wrong = _rare_lost(reference, actual)
        how = None
        if count and not wrong and self.margins is not None:
            how = self.margins.values(actual)
        how = None if how is None else how[differ]
        error = _with_counts(error, words(self.stated, tolerance), count, size, allowed)
        return self._concluded(error, size, wrong, how)

    def _concluded(
        self, error: OutputError, size: int, wrong: str, how: Array | None
    ) -> OutputError:
        """The verdict; `how` those that differ were decided, None if that is not known."""
        count = error.differing
        if how is not None:
            within = int(np.count_nonzero(how != CLEARLY))
            moved = int(np.count_nonzero(how != TIED))
            error = replace(error, within_margin=within)
            if within < count:
                wrong = f"{count - within} of them were decided clearly"
            elif self.stated.kind == "ranking" and moved > max(1, _MOVED * size):
                wrong = f"{moved} are at another rank, more than {100 * _MOVED:g} %"
        elif count and not wrong and not self.asks and not self._suffices(count, size):
            wrong = "it is not known how narrowly they were decided"
        if wrong:
            reason = f"{count} of {size} values differ: {wrong}"
            return replace(error, passed=False, reason=reason, breached=(TOLERANCE,))
        if self.stated.kind == "places":
            error = replace(error, max_abs=0.0, max_rel=0.0)
        return replace(error, passed=True, reason="", breached=())

    def _suffices(self, count: int, size: int) -> bool:
        """Whether their number alone excuses those that differ: a load knows of no margins."""
        if size < _FEW:
            return False
        asked = self.margins is not None or self.stated.kind == "other"
        if not asked or self.stated.kind in (*_MEASURES, "ranking"):
            return True
        return count <= int(self.stated.max_differing * size)

    def _allowed(self, size: int) -> int:
        shares: Mapping[Decided, float] = {
            "ranking": _RANKED_SHARE,
            "places": 2 * self.stated.max_differing,
        }
        share = shares.get(self.stated.kind, self.stated.max_differing)
        return max(1, int(share * size)) if self.stated.max_differing else 0

    def _measured(self, reference: Array, actual: Array, tolerance: Tolerance) -> tuple[int, str]:
        """How many may differ, all by one step, and what is wrong."""
        size, step = reference.size, _step(reference)
        expected, found = (each.astype(np.float64) / step for each in (reference, actual))
        with np.errstate(invalid="ignore", over="ignore"):
            differences = np.abs(found - expected)
        bound = tolerance.atol / step + tolerance.rtol * float(np.max(np.abs(expected)))
        most_on_average = max(self.stated.max_differing, _MEAN_SHARE * bound)
        largest, mean = float(np.max(differences)), float(np.mean(differences))
        allowed = max(self._allowed(size), int(min(1.0, most_on_average) * size))
        # Not ">", so that NaN where there was none fails as well.
        if not largest <= 1.0 + bound:
            return allowed, f"by up to {largest:.3g} steps, more than 1 + {bound:.3g}"
        if not mean * size <= max(most_on_average * size, allowed):
            return allowed, f"by {mean:.3g} steps on average, more than {most_on_average:.3g}"
        return allowed, ""

    def _places(
        self, reference: Array, actual: Array, tolerance: Tolerance, error: OutputError
    ) -> OutputError:
        expected, found = (_rows(each, self.stated.axis) for each in (reference, actual))
        if expected is None or found is None or expected.shape[1] != found.shape[1]:
            return error
        ones, others = (list(map(tuple, each.tolist())) for each in (expected, found))
        differ = sorted(set(ones) ^ set(others))
        size = max(len(ones), len(others))
        allowed, wrong, how = self._allowed(size), "", None
        if others != sorted(set(others)):
            wrong = "the places are not listed once each, in their order"
        elif len(differ) > allowed:
            wrong = f"more than {allowed}"
        elif differ and self.margins is not None:
            how = self.margins.places(np.array(differ, np.int64))
        error = _with_counts(error, words(self.stated, tolerance), len(differ), size, allowed)
        return self._concluded(error, size, wrong, how)


def needs_margins(error: OutputError) -> bool:
    """Whether few values passed by their margins alone, which a load does not know."""
    if not error.passed or not error.differing or error.agreement is None:
        return False
    return bool(error.rule) and round(error.differing / (1.0 - error.agreement)) < _FEW


def _with_counts(error: OutputError, rule: str, count: int, size: int, allowed: int) -> OutputError:
    agreement = max(0.0, 1.0 - count / size) if size else None
    return replace(error, agreement=agreement, rule=rule, differing=count, allowed=allowed)


def _snapped(reference: Array, actual: Array, tolerance: Tolerance) -> Array:
    """`actual` with those values of the reference that it has but for what a type rounds off."""
    distinct = np.unique(reference[np.isfinite(reference)]).astype(np.float64)
    if not distinct.size:
        return actual
    bound = tolerance.atol + tolerance.rtol * float(np.max(np.abs(distinct)))
    bound = min(bound, 0.5 * float(np.min(np.diff(distinct), initial=np.inf)))
    found = actual.astype(np.float64)
    after = np.clip(np.searchsorted(distinct, found), 1, max(1, distinct.size - 1))
    pair = distinct[np.stack([after - 1, np.minimum(after, distinct.size - 1)])]
    with np.errstate(invalid="ignore"):
        away = np.abs(pair - found)
    nearest = np.where(away[0] <= away[1], pair[0], pair[1])
    return np.where(away.min(axis=0) < bound, nearest, found).astype(actual.dtype)


def _step(values: Array) -> float:
    """The distance of neighbors among values that were rounded and then scaled; 1 if few."""
    distinct = np.unique(values)
    if values.dtype.kind not in "iuf" or len(distinct) < _FEW:
        return 1.0
    if values.dtype.kind == "f":
        distinct = distinct[np.isfinite(distinct)].astype(np.float64)
        return float(np.min(np.diff(distinct), initial=1.0)) or 1.0
    offsets = (distinct.astype(object) - int(distinct[0])).tolist()
    return float(math.gcd(*map(int, offsets))) or 1.0


def _hidden(reference: Array, actual: Array) -> str:
    """That an answer is one value throughout, where the reference has several others."""
    first = actual.reshape(-1)[0]
    others = int(np.count_nonzero(reference != first))
    hidden = others >= _FEW and bool((actual == first).all())
    return "the answer is one value throughout" if hidden else ""


def _rare_lost(reference: Array, actual: Array) -> str:
    """That of the values other than the most frequent one, which most answers have, few are kept.

    A share of all values allows that, where there are few others.
    """
    distinct, counts = np.unique(reference, return_counts=True)
    usual = distinct[np.argmax(counts)]
    others = (reference != usual) | (actual != usual)
    same = (reference == actual) | ((reference != reference) & (actual != actual))
    kept, total = int(np.count_nonzero(others & same)), int(np.count_nonzero(others))
    if total - kept < _FEW or kept >= _LEAST_KEPT * total:
        return ""
    return f"of {total} other than {usual} only {kept} agree"


def _missing(reference: Array, actual: Array) -> int:
    """How many values of the rows along the last axis are not in that row of the reference."""
    width = reference.shape[-1] if reference.ndim else 1
    rows = zip(reference.reshape(-1, width), actual.reshape(-1, width), strict=True)
    return sum(int(np.count_nonzero(~np.isin(found, expected))) for expected, found in rows)


def _rows(places: Array, axis: int) -> Array | None:
    """One place a row, of a list along `axis`; None for another form."""
    if places.ndim == 1:
        return places.reshape(-1, 1)
    if places.ndim != 2:
        return None
    return places if axis == 0 else places.T


def words(stated: DecidedOutput, tolerance: Tolerance) -> str:
    """The rule of an output, for people."""
    kind = stated.kind
    share = f"{100 * stated.max_differing:g} %"
    within = f"{tolerance.atol:g} + {tolerance.rtol:g} of the largest"
    narrow = f"and only where errors of {within} explain it"
    if kind in _MEASURES:
        return (
            f"{_VALUES[kind]} differ by at most 1 and {within}, on average by at most a quarter of "
            f"that or in {share} of the values, and only where they were decided narrowly"
        )
    if kind == "ranking":
        return (
            f"at most {100 * _RANKED_SHARE:g} % of the ranked indices are not among those of the "
            f"reference, and {100 * _MOVED:g} % are at another rank, {narrow}"
        )
    if kind == "places":
        return f"at most {share} of the places are missing and as many are added, {narrow}"
    rule = f"at most {share} of the {_VALUES[kind]} differ"
    return rule if kind == "other" else f"{rule}, {narrow}"
