"""What an interval of latencies says, and what several pairs of processes do."""

from __future__ import annotations

import pytest

from aotc.fleet.upgrade import judged
from aotc.spec.upgrade import LatencyVerdict
from aotc.tools.bench_comparison import Interval

ROWS: tuple[tuple[float, float, int, LatencyVerdict], ...] = (
    (1.06, 1.20, 30, "slower"),
    (0.70, 0.94, 30, "faster"),
    (0.98, 1.03, 30, "same"),
    # One end is beyond the bound.
    (1.01, 1.20, 30, "not-judged"),
    (0.90, 1.01, 30, "not-judged"),
    # 1 / 1.05 is above 0.95.
    (0.951, 1.0, 30, "not-judged"),
    # Both ends are.
    (0.80, 1.30, 30, "not-judged"),
    # Too few to say anything.
    (2.00, 3.00, 9, "not-judged"),
)


@pytest.mark.parametrize(("lower", "upper", "rounds", "verdict"), ROWS)
def test_only_a_whole_interval_says_something(
    lower: float, upper: float, rounds: int, verdict: LatencyVerdict
) -> None:
    interval = Interval(ratio=(lower * upper) ** 0.5, lower=lower, upper=upper, rounds=rounds)
    assert judged(interval, 1.05) == verdict
