"""The decision rule, on samples whose distributions are known: nothing here is timed."""

from __future__ import annotations

import numpy as np
import pytest

from aotc.tools.bench_comparison import (
    MIN_ROUNDS,
    Interval,
    judge,
    paired_interval,
    unpaired_interval,
)

Blocks = list[list[float]]


def blocks(
    generator: np.random.Generator,
    factor: float,
    *,
    rounds: int = 30,
    drift: np.ndarray | None = None,
    noise: float = 0.1,
) -> Blocks:
    """Ten latencies a round, skewed as latencies are, times `factor` and the round's drift."""
    speed = np.ones(rounds) if drift is None else drift
    return [
        list(factor * speed[number] * generator.lognormal(0, noise, 10)) for number in range(rounds)
    ]


def both(seed: int, factor: float, *, rounds: int = 30, drifts: bool = False) -> Interval:
    generator = np.random.default_rng(seed)
    drift = np.exp(np.cumsum(generator.normal(0, 0.05, rounds))) if drifts else None
    ours = blocks(generator, factor, rounds=rounds, drift=drift)
    return paired_interval(ours, blocks(generator, 1.0, rounds=rounds, drift=drift))


@pytest.mark.parametrize(
    ("lower", "upper", "verdict", "reason"),
    [
        (1.051, 1.2, "slower", "the whole interval is above 1.05"),
        (1.05, 1.2, "inconclusive", "the interval holds ratios below and above 1.05"),
        (0.9, 1.051, "inconclusive", "the interval holds ratios below and above 1.05"),
        (0.9, 1.05, "within", "the whole interval is at or below 1.05"),
        (0.5, 0.6, "within", "the whole interval is at or below 1.05"),
    ],
)
def test_the_verdict(lower: float, upper: float, verdict: str, reason: str) -> None:
    interval = Interval(ratio=(lower + upper) / 2, lower=lower, upper=upper, rounds=30)
    assert judge(interval, 1.05) == (verdict, reason)


def test_too_few_rounds_show_nothing_however_clear_they_are() -> None:
    interval = both(1, 5.0, rounds=MIN_ROUNDS - 1)
    assert interval.lower > 4
    assert judge(interval, 1.05) == ("inconclusive", "9 rounds, and an interval needs 10")
    assert judge(both(1, 5.0, rounds=MIN_ROUNDS), 1.05)[0] == "slower"


def test_one_call_gives_no_verdict() -> None:
    interval = paired_interval([[9.0]], [[1.0]])
    assert (interval.ratio, interval.lower, interval.upper) == (9.0, 9.0, 9.0)
    assert judge(interval, 1.05)[0] == "inconclusive"


@pytest.mark.parametrize("drifts", [False, True])
def test_a_known_ratio_is_in_nearly_all_intervals(drifts: bool) -> None:
    """Of 95 % intervals; with a machine that drifts by a third over the rounds, as well."""
    intervals = [both(seed, 1.2, drifts=drifts) for seed in range(40)]
    covered = sum(found.lower <= 1.2 <= found.upper for found in intervals)
    assert covered >= 34
    assert all(found.lower <= found.ratio <= found.upper for found in intervals)


def test_what_is_as_quick_is_nearly_never_called_slower() -> None:
    verdicts = [judge(both(seed, 1.0), 1.05)[0] for seed in range(40)]
    assert verdicts.count("slower") == 0
    assert verdicts.count("within") >= 20


def test_what_is_half_as_quick_again_is_always_called_slower() -> None:
    assert {judge(both(seed, 1.5, drifts=True), 1.05)[0] for seed in range(20)} == {"slower"}


def test_rounds_are_drawn_whole() -> None:
    """Were single calls drawn, the calls of one side's slow rounds would look like many."""
    generator = np.random.default_rng(5)
    # One side alone is slow in half of the rounds: 15 facts, not 150.
    speed = np.where(np.arange(30) % 2, 1.3, 0.9)
    found = paired_interval(
        blocks(generator, 1.0, drift=speed, noise=0.01), blocks(generator, 1.0, noise=0.01)
    )
    assert found.upper - found.lower > 0.3
    assert judge(found, 1.05)[0] == "inconclusive"


def test_equal_data_give_equal_intervals() -> None:
    assert both(7, 1.1) == both(7, 1.1)


def test_many_samples_of_a_block_are_thinned_and_tell_the_same() -> None:
    generator = np.random.default_rng(2)
    ours = [list(1.2 * generator.lognormal(0, 0.1, 5000)) for _ in range(12)]
    theirs = [list(generator.lognormal(0, 0.1, 5000)) for _ in range(12)]
    found = paired_interval(ours, theirs)
    assert found.lower == pytest.approx(1.2, abs=0.02)
    assert found.upper == pytest.approx(1.2, abs=0.02)


def test_several_earlier_measurements_widen_the_interval_by_how_much_they_differ() -> None:
    generator = np.random.default_rng(4)
    ours = blocks(generator, 1.1)
    one = [sorted(generator.lognormal(0, 0.1, 300))]
    differing = [
        sorted(factor * generator.lognormal(0, 0.1, 300)) for factor in (0.85, 0.95, 1.05, 1.15)
    ]
    narrow, wide = unpaired_interval(ours, one), unpaired_interval(ours, differing)
    assert judge(narrow, 1.05)[0] == "slower"
    assert judge(wide, 1.05)[0] == "inconclusive"
    assert wide.upper - wide.lower > 2 * (narrow.upper - narrow.lower)


def test_a_history_of_a_few_calls_gives_no_verdict() -> None:
    ours = blocks(np.random.default_rng(4), 3.0)
    assert judge(unpaired_interval(ours, [[1.0] * 9]), 1.05)[0] == "inconclusive"
