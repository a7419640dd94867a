"""Whether one side is slower than another: a ratio of medians, with a bootstrap interval.

Samples that follow one another share what else the machine does, so that single calls may not be
resampled as if they were independent: whole rounds are (a block bootstrap: Künsch, The Jackknife
and the Bootstrap for General Stationary Observations, 1989).  A round holds a block of each side,
which ran one after the other, and its blocks are drawn together, so that a drift over the rounds
concerns both sides alike.  The interval is Efron's of percentiles (Bootstrap Methods: Another Look
at the Jackknife, 1979).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

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


@record
class Interval:
    """A ratio of medians, and the ends of its confidence interval, from so many blocks."""

    ratio: float
    lower: float
    upper: float
    rounds: int


def paired_interval(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """Our median / theirs, from the blocks (seconds of calls) of the same rounds, one a round."""
    left, right = _thin(ours), _thin(theirs)
    generator = np.random.default_rng(_SEED)

    def draw() -> float:
        chosen = generator.integers(len(left), size=len(left))
        return _median(_drawn(left, chosen)) / _median(_drawn(right, chosen))

    return _interval(_median(_joined(ours)) / _median(_joined(theirs)), draw, len(ours))


def unpaired_interval(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> Interval:
    """Our median / theirs, from our blocks and the samples of their measurements, one or several.

    Of several, whole measurements are drawn as well, so that the interval holds how much they
    differ; of one, what changed on the machine since then is not in it.
    """
    left, right = _thin(ours), [np.sort(np.asarray(each, np.float64)) for each in theirs]
    generator = np.random.default_rng(_SEED)

    def draw() -> float:
        chosen = generator.integers(len(left), size=len(left))
        drawn = [
            generator.choice(right[index], size=len(right[index]))
            for index in generator.integers(len(right), size=len(right))
        ]
        return _median(_drawn(left, chosen)) / _median(np.concatenate(drawn))

    rounds = min(len(ours), sum(map(len, theirs)))
    return _interval(_median(_joined(ours)) / _median(_joined(theirs)), draw, rounds)


def judge(interval: Interval, allow: float) -> tuple[Verdict, str]:
    """The verdict on a ratio that may be up to `allow`, and the reason in words."""
    if interval.rounds < MIN_ROUNDS:
        return "not shown", f"{interval.rounds} rounds, and an interval needs {MIN_ROUNDS}"
    if interval.lower > allow:
        return "slower", f"the whole interval is above {allow:g}"
    if interval.upper <= allow:
        return "within", f"the whole interval is at or below {allow:g}"
    return "not shown", f"the interval holds ratios below and above {allow:g}"


def _interval(ratio: float, draw: Callable[[], float], rounds: int) -> Interval:
    """The interval from ratios of resampled data, each of which `draw` gives."""
    ratios = [draw() for _ in range(_RESAMPLES)]
    tail = (1 - CONFIDENCE) / 2
    lower, upper = np.quantile(ratios, [tail, 1 - tail])
    return Interval(ratio=ratio, lower=float(lower), upper=float(upper), rounds=rounds)


def _thin(blocks: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
    return [np.asarray(thinned(sorted(block), _MAX_PER_BLOCK)) for block in blocks]


def _joined(blocks: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(block, np.float64) for block in blocks])


def _drawn(blocks: list[NDArray[np.float64]], chosen: Any) -> NDArray[np.float64]:
    return np.concatenate([blocks[index] for index in chosen])


def _median(samples: NDArray[np.float64]) -> float:
    """The sample of nearest rank, as `percentile` of 0.5 gives it."""
    rank = (len(samples) + 1) // 2 - 1
    return float(np.partition(samples, rank)[rank])
