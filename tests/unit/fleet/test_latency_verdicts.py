"""What an interval of latencies says, and what several pairs of processes do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotc.fleet.runtimes import Runtime
from aotc.fleet.upgrade import _Comparison, _Timed, judged
from aotc.spec.profile import WorkerLimits
from aotc.spec.upgrade import LatencyVerdict, RuntimeEnvironment
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


SLOWER = Interval(ratio=1.5, lower=1.4, upper=1.6, rounds=30)
SLIGHTLY = Interval(ratio=1.2, lower=1.1, upper=1.3, rounds=30)
SAME = Interval(ratio=1.0, lower=0.98, upper=1.02, rounds=30)
FASTER = Interval(ratio=0.5, lower=0.4, upper=0.6, rounds=30)


@pytest.mark.parametrize(
    ("pairs", "verdict", "ratio", "count"),
    [
        ((SLOWER, SLIGHTLY, SLIGHTLY), "slower", 1.2, 3),
        ((FASTER, FASTER, FASTER), "faster", 0.5, 3),
        ((SAME, SLOWER, SLOWER), "same", 1.0, 1),
        ((SLOWER, SAME, SLOWER), "not-judged", 1.5, 2),
        ((SLOWER, SLIGHTLY, FASTER), "not-judged", 1.2, 3),
    ],
)
def test_what_is_not_the_same_is_so_in_every_pair(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pairs: tuple[Interval, ...],
    verdict: LatencyVerdict,
    ratio: float,
    count: int,
) -> None:
    monkeypatch.setattr(_Comparison, "_pair", lambda _self, _timed, number, *_: pairs[number])
    runtime = Runtime(about=RuntimeEnvironment())
    comparison = _Comparison(
        runtimes=(runtime, runtime),
        key="",
        pem="",
        work=tmp_path,
        limits=WorkerLimits(),
        allow=1.05,
        measure_seconds=1.0,
    )
    timed = _Timed(folder=tmp_path, name="m", inputs={}, staged=())
    with ThreadPoolExecutor(1) as pool:
        found = comparison._latency(timed, (), pool)
    assert (found.verdict, found.ratio, found.pairs) == (verdict, ratio, count)
    assert found.lower == min(each.lower for each in pairs[:count])
    assert (found.reason == "pairs of processes do not agree") == (verdict == "not-judged")
