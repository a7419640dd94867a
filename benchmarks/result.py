"""The results of a benchmark: rows of the table, and the samples that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table; `held` is None if there is no limit."""

    what: str
    asked: str = ""
    measured: str
    held: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One benchmark's rows, and its raw samples in seconds or bytes, by what was measured."""

    rows: tuple[Row, ...]
    samples: dict[str, list[float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON-like data."""
        return {"rows": [asdict(row) for row in self.rows], "samples": self.samples}


def at_most(what: str, ratio: float, limit: float, detail: str) -> Row:
    """A row whose ratio must be at most `limit`; the rounded value is compared."""
    shown = round(ratio, 3)
    return Row(
        what=what,
        asked=f"≤ {limit:g}",
        measured=f"{shown:.3f} ({detail})" if detail else f"{shown:.3f}",
        held=shown <= limit,
    )


def at_least(what: str, ratio: float, limit: float, detail: str) -> Row:
    """A row whose ratio must be at least `limit`; the rounded value is compared."""
    shown = round(ratio, 3)
    return Row(
        what=what,
        asked=f"≥ {limit:g}",
        measured=f"{shown:.3f} ({detail})" if detail else f"{shown:.3f}",
        held=shown >= limit,
    )


def unjudged(what: str, ratio: float, detail: str) -> Row:
    """A row without a limit."""
    return Row(what=what, measured=f"{ratio:.3f} ({detail})" if detail else f"{ratio:.3f}")


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of `ours` divided by the median of `theirs`."""
    return median(ours) / median(theirs)


def paired_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The median of `ours[i] / theirs[i]`, and its 95 % interval by the percentile bootstrap.

    Both sequences have one sample per round, so that a slow round cancels out.  The seed is fixed.
    """
    ratios = np.asarray(ours) / np.asarray(theirs)
    draws = np.random.default_rng(0).integers(0, len(ratios), (2000, len(ratios)))
    low, high = np.percentile(np.median(ratios[draws], axis=1), [2.5, 97.5])
    return float(np.median(ratios)), float(low), float(high)


def milliseconds(seconds: float) -> str:
    """Seconds as text, in milliseconds."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"
