"""Alternating rounds within one process; medians."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

Call = Callable[[], Any]


def by_turns(calls: Mapping[str, Call], rounds: int, warm_up: int = 5) -> dict[str, list[float]]:
    """Seconds of each call, in rounds in which all take a turn, in random order.

    Every call waits for its device before it returns.  The first `warm_up` rounds do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    generator = random.Random(0)
    order = list(calls)
    for turn in range(rounds + warm_up):
        generator.shuffle(order)
        for name in order:
            call = calls[name]
            started = time.perf_counter()
            call()
            spent = time.perf_counter() - started
            if turn >= warm_up:
                seconds[name].append(spent)
    return seconds


def blocks_by_turns(
    calls: Mapping[str, Call], blocks: int, size: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of one call, the median of each block of `size` calls; blocks alternate.

    For calls of microseconds, whose own cost is asked for and not that of the other's cold caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(blocks + warm_up):
        for name, call in calls.items():
            spent = []
            for _ in range(size):
                started = time.perf_counter()
                call()
                spent.append(time.perf_counter() - started)
            if turn >= warm_up:
                seconds[name].append(median(spent))
    return seconds


def enough_rounds(seconds: float, *, most: int = 200, least: int = 30, budget: float = 4.0) -> int:
    """Rounds that fit `budget` seconds where one takes `seconds`."""
    return max(least, min(most, int(budget / max(seconds, 1e-6))))


def milliseconds(samples: Mapping[str, list[float]]) -> dict[str, float]:
    """The medians in ms."""
    return {name: median(found) * 1e3 for name, found in samples.items()}
