"""Who runs when: rounds, blocks, and streams, by what was recorded of each call."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.tools.bench_sides import (
    MAX_ROUNDS,
    Measured,
    Plan,
    block_sizes,
    require_plan,
    run_rounds,
    seconds_of,
)


class Calls:
    """The names of the sides in the order of their calls."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.collecting: list[bool] = []

    def side(self, name: str) -> Callable[[], None]:
        def call() -> None:
            self.names.append(name)
            self.collecting.append(gc.isenabled())

        return call


def measure(runs: int, names: str = "ab", *, warm_up: int = 0) -> tuple[Measured, list[str]]:
    calls = Calls()
    plan = Plan(runs=runs, seconds=None, warm_up=warm_up)
    return run_rounds({name: calls.side(name) for name in names}, plan), calls.names


def test_each_round_has_a_block_of_each_side_in_an_order_of_its_own() -> None:
    measured, _ = measure(300, "abc")
    order = measured.order()
    assert len(order) == MAX_ROUNDS
    assert all(sorted(sides) == ["a", "b", "c"] for sides in order)
    assert len(set(order)) == 6
    # No side is always first.
    assert all(count >= 4 for count in Counter(sides[0] for sides in order).values())


def test_blocks_ran_in_the_order_that_is_recorded() -> None:
    """The calls themselves tell it: one that is not timed, and ten that are."""
    measured, names = measure(300)
    recorded = [side for sides in measured.order() for side in sides for _ in range(1 + 10)]
    assert names == recorded
    for side in "ab":
        assert [len(calls) for calls in seconds_of(measured.of(side))] == [10] * MAX_ROUNDS


def test_warm_up_comes_first_and_is_not_timed() -> None:
    measured, names = measure(1, warm_up=2)
    assert names[:4] == ["a", "a", "b", "b"]
    # One untimed call and one timed one of each side.
    assert len(names) == 8
    assert sum(len(block.calls) for block in measured.blocks) == 2


@pytest.mark.parametrize("runs", [1, 7, 30, 31, 299, 1000])
def test_exactly_so_many_runs_are_timed(runs: int) -> None:
    measured, _ = measure(runs, "a")
    assert sum(len(block.calls) for block in measured.blocks) == runs
    sizes = [len(block.calls) for block in measured.blocks]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("plan", "pilot", "rounds", "runs"),
    [
        (Plan(runs=300, seconds=10), 1e-3, 30, 300),
        # As many as fit, but one in each round.
        (Plan(runs=300, seconds=10), 0.1, 30, 100),
        (Plan(runs=300, seconds=10), 5.0, 30, 30),
        (Plan(runs=None, seconds=2), 1e-3, 30, 2000),
        (Plan(runs=None, seconds=10), 0.0, 30, 1_000_000),
        # Streams want blocks in which all are busy.
        (Plan(runs=1200, seconds=None, streams=4), 0.0, 30, 1200),
        (Plan(runs=400, seconds=None, streams=4), 0.0, 12, 400),
        (Plan(runs=40, seconds=None, streams=4), 0.0, 10, 40),
        (Plan(runs=12, seconds=None, streams=4), 0.0, 3, 12),
        (Plan(runs=3, seconds=None, streams=4), 0.0, 1, 3),
    ],
)
def test_how_runs_are_divided(plan: Plan, pilot: float, rounds: int, runs: int) -> None:
    sizes = block_sizes(plan, pilot)
    assert (len(sizes), sum(sizes)) == (rounds, runs)
    assert max(sizes) - min(sizes) <= 1


def test_time_ends_the_rounds_and_every_side_has_run_as_often() -> None:
    slow = Plan(runs=300, seconds=0.05)
    measured = run_rounds({name: lambda: time.sleep(0.02) for name in "ab"}, slow)
    ours, theirs = len(measured.of("a")), len(measured.of("b"))
    assert ours == theirs
    assert 1 <= ours < MAX_ROUNDS


def test_streams_share_the_calls_of_a_block() -> None:
    """All are in a call at the same time at least once, which one thread could not be."""
    together = threading.Barrier(3)
    met: Counter[int] = Counter()

    def call() -> None:
        try:
            met[together.wait(10)] += 1
        except threading.BrokenBarrierError:
            pytest.fail("the streams did not run at the same time")

    # Each of the blocks: three calls that are not timed, and three that are.
    measured = run_rounds({"a": call}, Plan(runs=9, seconds=None, streams=3))
    assert sum(len(block.calls) for block in measured.blocks) == 9
    assert {timed.stream for block in measured.blocks for timed in block.calls} == {0, 1, 2}
    assert set(met) == {0, 1, 2}


def test_a_blocks_seconds_hold_all_of_its_calls() -> None:
    plan = Plan(runs=40, seconds=None, streams=2)
    measured = run_rounds({"a": lambda: time.sleep(0.001)}, plan)
    for block in measured.blocks:
        longest = max(timed.seconds for timed in block.calls)
        assert longest <= block.seconds
        # Two streams cannot be busy for longer than twice the time that passed.
        assert sum(timed.seconds for timed in block.calls) <= 2 * block.seconds + 1e-9


@pytest.mark.parametrize("streams", [1, 3])
def test_the_first_error_ends_it(streams: int) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        run_rounds({"a": call}, Plan(runs=1000, seconds=None, streams=streams))
    assert calls < 20


def test_one_stream_that_fails_ends_the_others() -> None:
    lock, calls = threading.Lock(), 0

    def call() -> None:
        nonlocal calls
        with lock:
            calls += 1
            number = calls
        time.sleep(0.001)
        if number == 10:
            raise ValueError("one")

    with pytest.raises(ValueError, match="one"):
        run_rounds({"a": call}, Plan(runs=30_000, seconds=None, streams=3))
    assert calls < 100


def test_an_interrupt_ends_the_streams() -> None:
    """Of a block of a thousand calls each, which take a second."""
    lock, calls = threading.Lock(), 0

    def call() -> None:
        nonlocal calls
        with lock:
            calls += 1
            number = calls
        time.sleep(0.001)
        if number == 20:
            # As from a terminal: to the thread that waits.
            assert threading.main_thread().ident is not None
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_rounds({"a": call}, Plan(runs=30_000, seconds=None, streams=2))
    assert calls < 500


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"streams": 0}, "streams is out of range (expected 1..256; found 0)"),
        ({"streams": 257}, "streams is out of range (expected 1..256; found 257)"),
        ({"runs": 0}, "timed runs is out of range (expected >= 1; found 0)"),
        ({"seconds": 0.0}, "seconds is out of range (expected > 0; found 0.0)"),
        ({"seconds": math.nan}, "seconds is out of range (expected > 0; found nan)"),
        ({"warm_up": -1}, "runs before the timed ones is out of range (expected >= 0; found -1)"),
    ],
)
def test_nothing_is_run_without_number(changed: dict[str, Any], what: str) -> None:
    plan = Plan(runs=1, seconds=None, streams=256)
    require_plan(plan)
    with pytest.raises(AotcError) as caught:
        require_plan(replace(plan, **changed))
    assert caught.value.line() == f"AOTC-I027 the number of {what}"


def test_the_collector_waits_and_is_then_as_before() -> None:
    calls = Calls()
    assert gc.isenabled()
    run_rounds({"a": calls.side("a")}, Plan(runs=3, seconds=None))
    assert calls.collecting == [False] * 6
    assert gc.isenabled()
