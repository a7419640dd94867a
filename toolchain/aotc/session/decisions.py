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
    """Judges one output; without `margins` by how many values differ, and by how much, alone."""

    stated: DecidedOutput
    margins: Margins | None = None

    def __call__(
        self, reference: Data, actual: Data, tolerance: Tolerance, error: OutputError
    ) -> OutputError:
        """`error`, as the tolerance alone judges it, by the output's own rule.

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
        return self._values(reference, actual, tolerance, error)

    def _values(
        self, reference: Array, actual: Array, tolerance: Tolerance, error: OutputError
    ) -> OutputError:
        # A NaN is equal to a NaN.
        differ = (reference != actual) & ~((reference != reference) & (actual != actual))
        count, size = int(np.count_nonzero(differ)), reference.size
        rule = words(self.stated, tolerance)
        if not count:
            return self._passed(error, 0, size, rule)
        if self.stated.kind in _MEASURES:
            allowed, wrong = self._measured(reference, actual, tolerance)
        else:
            allowed = self._allowed(size)
            if self.stated.kind == "ranking":
                missing = _missing(reference, actual)
                wrong = f"{missing} are not among the reference's" if missing > allowed else ""
            else:
                wrong = f"more than {allowed}" if count > allowed else ""
        if not wrong and _hides(reference, actual):
            wrong = "the answer is one value throughout"
        if wrong:
            return _failed(error, count, size, allowed, rule, wrong)
        excused = self.margins.values(actual) if self.margins is not None else None
        if excused is None:
            return self._passed(error, count, size, rule, allowed)
        within = int(np.count_nonzero(differ & (excused != CLEARLY)))
        moved = int(np.count_nonzero(differ & (excused != TIED)))
        if within < count:
            wrong = f"{count - within} of them were decided clearly"
        elif self.stated.kind == "ranking" and moved > max(self._least(size), _MOVED * size):
            wrong = f"{moved} are at another rank, more than {100 * _MOVED:g} %"
        if wrong:
            failed = _failed(error, count, size, allowed, rule, wrong)
            return replace(failed, within_margin=within)
        return replace(self._passed(error, count, size, rule, allowed), within_margin=within)

    def _least(self, size: int) -> int:
        return 1 if self.margins is not None or size >= _FEW else 0

    def _allowed(self, size: int) -> int:
        shares: Mapping[Decided, float] = {
            "ranking": _RANKED_SHARE,
            "places": 2 * self.stated.max_differing,
        }
        share = shares.get(self.stated.kind, self.stated.max_differing)
        return max(self._least(size), int(share * size))

    def _measured(self, reference: Array, actual: Array, tolerance: Tolerance) -> tuple[int, str]:
        """How many may differ, all by one, and what is wrong."""
        expected, found = reference.astype(np.float64), actual.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            differences = np.abs(found - expected)
        bound = tolerance.atol + tolerance.rtol * float(np.max(np.abs(expected)))
        mean_bound = max(self.stated.max_differing, _MEAN_SHARE * bound)
        largest, mean = float(np.max(differences)), float(np.mean(differences))
        allowed = max(self._allowed(reference.size), int(min(1.0, mean_bound) * reference.size))
        # Not ">", so that NaN where there was none fails as well.
        if not largest <= 1.0 + bound:
            return allowed, f"by up to {largest:.3g}, more than 1 + {bound:.3g}"
        if not mean * reference.size <= max(mean_bound * reference.size, allowed):
            return allowed, f"by {mean:.3g} on average, more than {mean_bound:.3g}"
        return allowed, ""

    def _places(
        self, reference: Array, actual: Array, tolerance: Tolerance, error: OutputError
    ) -> OutputError:
        expected, found = (_rows(each, self.stated.axis) for each in (reference, actual))
        if expected is None or found is None or expected.shape[1] != found.shape[1]:
            return error
        ones, others = set(map(tuple, expected.tolist())), set(map(tuple, found.tolist()))
        differ = sorted(ones ^ others)
        size = max(len(ones), len(others))
        rule = words(self.stated, tolerance)
        allowed = self._allowed(size)
        wrong = ""
        if list(map(tuple, found.tolist())) != sorted(others):
            wrong = "the places are not listed once each, in their order"
        elif len(differ) > allowed:
            wrong = f"more than {allowed}"
        count = len(differ)
        if wrong:
            return _failed(error, count, size, allowed, rule, wrong)
        passed = self._passed(error, count, size, rule, allowed)
        if not differ or self.margins is None:
            return passed
        excused = self.margins.places(np.array(differ, np.int64))
        if excused is None:
            return passed
        within = int(np.count_nonzero(excused))
        if within < count:
            wrong = f"{count - within} of them were decided clearly"
            failed = _failed(error, count, size, allowed, rule, wrong)
            return replace(failed, within_margin=within)
        return replace(passed, within_margin=within)

    def _passed(
        self, error: OutputError, count: int, size: int, rule: str, allowed: int | None = None
    ) -> OutputError:
        return replace(
            error,
            agreement=_agreement(count, size),
            max_abs=0.0 if self.stated.kind == "places" else error.max_abs,
            max_rel=0.0 if self.stated.kind == "places" else error.max_rel,
            passed=True,
            reason="",
            breached=(),
            rule=rule,
            differing=count,
            allowed=self._allowed(size) if allowed is None else allowed,
        )


def needs_margins(error: OutputError) -> bool:
    """Whether few values passed by their margins alone, which a load does not know."""
    if not error.passed or not error.differing or error.agreement is None:
        return False
    return bool(error.rule) and round(error.differing / (1.0 - error.agreement)) < _FEW


def _failed(
    error: OutputError, count: int, size: int, allowed: int, rule: str, wrong: str
) -> OutputError:
    return replace(
        error,
        agreement=_agreement(count, size),
        passed=False,
        reason=f"{count} of {size} values differ: {wrong}",
        breached=(TOLERANCE,),
        rule=rule,
        differing=count,
        allowed=allowed,
    )


def _agreement(count: int, size: int) -> float | None:
    return max(0.0, 1.0 - count / size) if size else None


def _hides(reference: Array, actual: Array) -> bool:
    """Whether an answer is one value throughout, where the reference has several others."""
    first = actual.reshape(-1)[0]
    others = int(np.count_nonzero(reference != first))
    return others >= _FEW and bool((actual == first).all())


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
