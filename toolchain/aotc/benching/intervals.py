"""Whether one side is slower than another: a ratio of medians, with a bootstrap interval.

Samples that follow one another share what else the machine does, so that single calls may not be
resampled as if they were independent: whole rounds are (a block bootstrap: Künsch, The Jackknife
and the Bootstrap for General Stationary Observations, 1989).  A round holds a block of each side,
which ran one after the other, and its blocks are drawn together, so that a drift over the rounds
concerns both sides alike.  The interval is Efron's of percentiles (Bootstrap Methods: Another Look
at the Jackknife, 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from aotc.benching.quantiles import thinned
from aotc.contract.results.bench_reports import Verdict
from aotc.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.95
# With fewer blocks to draw from, an interval is far too narrow.
MIN_ROUNDS: Final = 10
_RESAMPLES: Final = 2000
_SEED: Final = 20260131
# Samples of a block that are resampled: more make no difference to a median, and take long.
_MAX_PER_BLOCK: Final = 200
# Resamples are drawn in so many parts, which bounds the memory.
_PARTS: Final = 10


@record
class Interval:
    """A ratio of medians, and the ends of its confidence interval, from so many blocks."""

    ratio: float
    lower: float
    upper: float
    rounds: int


def paired_interval(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """Our median / theirs, from the blocks (seconds of calls) of the same rounds, one a round."""
    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(len(ours), size=(_RESAMPLES, len(ours)))
    ratio = _median_of_all(ours) / _median_of_all(theirs)
    return _interval(ratio, _medians(ours, drawn) / _medians(theirs, drawn), len(ours))


def unpaired_interval(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> Interval:
    """Our median / theirs, from our blocks and the samples of their measurements, one or several.

    Of several, whole measurements are drawn as well, so that the interval holds how much they
    differ; of one, what changed on the machine since then is not in it.
    """
    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(len(ours), size=(_RESAMPLES, len(ours)))
    earlier = [np.asarray(samples, np.float64) for samples in theirs]
    medians = np.empty(_RESAMPLES)
    for index in range(_RESAMPLES):
        chosen = generator.integers(len(earlier), size=len(earlier))
        samples = [generator.choice(earlier[each], len(earlier[each])) for each in chosen]
        medians[index] = _median_of_all(samples)
    ratio = _median_of_all(ours) / _median_of_all(theirs)
    return _interval(ratio, _medians(ours, drawn) / medians, min(len(ours), sum(map(len, earlier))))


def judge(interval: Interval, allow: float) -> tuple[Verdict, str]:
    """The verdict on a ratio that may be up to `allow`, and the reason in words."""
    if interval.rounds < MIN_ROUNDS:
        return "not shown", f"{interval.rounds} rounds, and an interval needs {MIN_ROUNDS}"
    if interval.lower > allow:
        return "slower", f"the whole interval is above {allow:g}"
    if interval.upper <= allow:
        return "within", f"the whole interval is at or below {allow:g}"
    return "not shown", f"the interval holds ratios below and above {allow:g}"


def _interval(ratio: float, ratios: NDArray[np.float64], rounds: int) -> Interval:
    """The interval from the ratios of resampled data."""
    tail = (1 - CONFIDENCE) / 2
    lower, upper = np.quantile(ratios, [tail, 1 - tail])
    return Interval(ratio=ratio, lower=float(lower), upper=float(upper), rounds=rounds)


def _medians(blocks: Sequence[Sequence[float]], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """The median of all samples of the drawn blocks: a row of their indices for each.

    Blocks differ by one sample at most, and are thinned to the same number.
    """
    size = min(_MAX_PER_BLOCK, *map(len, blocks))
    equal = np.asarray([thinned(sorted(block), size) for block in blocks])
    rank = _rank(len(blocks) * size)
    parts = [
        np.partition(equal[rows].reshape(len(rows), -1), rank, axis=1)[:, rank]
        for rows in np.array_split(drawn, _PARTS)
    ]
    return np.concatenate(parts)


def _median_of_all(blocks: Sequence[Sequence[float] | NDArray[np.float64]]) -> float:
    joined = np.concatenate([np.asarray(block, np.float64) for block in blocks])
    rank = _rank(len(joined))
    return float(np.partition(joined, rank)[rank])


def _rank(count: int) -> int:
    """The index of the sample of nearest rank, as `percentile` of 0.5 has it."""
    return (count + 1) // 2 - 1
