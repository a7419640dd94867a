"""Runs several sides in turn: in rounds, in each of which every side runs one block of calls.

A machine's speed drifts while it is measured, by other work, clock rates and heat.  So sides are
interleaved, and the order of their blocks within a round is drawn anew for each, so that no side
always follows the same other one.  The first call of a block is not timed: it meets caches that
another side filled, and threads of another side's session that still wait for work.  Python's
garbage collector waits for the end of a block, because what is kept of the calls would start it.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from aotc.errors import AotcError
from aotc.records import field, record

MAX_ROUNDS: Final = 30
_MIN_ROUNDS: Final = 10
# Calls of each stream in a block: fewer, and most of a block runs with idle streams.
_CALLS_OF_A_STREAM: Final = 8
# More threads than any machine has cores for wait for one another, and for nothing else.
MAX_STREAMS: Final = 256
# Of one side: more would fill memory, and say nothing new.
_MAX_CALLS: Final = 1_000_000
_SEED: Final = 20260131

Call = Callable[[], object]


@record
class Plan:
    """How long to measure: `runs` calls of each side, or `seconds` of all, whichever ends first."""

    runs: int | None
    seconds: float | None
    streams: int = 1
    warm_up: int = 0


@record(kw_only=False)
class TimedCall:
    """One timed call: its stream, its start by `time.perf_counter`, and its seconds."""

    stream: int
    start: float
    seconds: float


@record
class Block:
    """The timed calls of one side in one round; `seconds` is from the first to the last."""

    side: str
    round: int
    seconds: float
    calls: tuple[TimedCall, ...]


@record(frozen=False)
class Measured:
    """All blocks, in the order in which they ran."""

    blocks: list[Block] = field(default_factory=list)

    def of(self, side: str) -> list[Block]:
        """The blocks of one side, one a round."""
        return [block for block in self.blocks if block.side == side]

    def order(self) -> tuple[tuple[str, ...], ...]:
        """The sides of each round, as they ran."""
        grouped = itertools.groupby(self.blocks, key=lambda block: block.round)
        return tuple(tuple(block.side for block in blocks) for _, blocks in grouped)


def seconds_of(blocks: Sequence[Block]) -> list[list[float]]:
    """The seconds of the calls of each block."""
    return [[call.seconds for call in block.calls] for block in blocks]


def run_rounds(sides: Mapping[str, Call], plan: Plan) -> Measured:
    """Warm up every side, and run all in rounds; raises what a call raises, and stops there.

    With several streams, as many threads call one side, and each begins its next call as soon as
    the last has been answered (a closed loop).
    """
    generator = random.Random(_SEED)  # noqa: S311
    measured = Measured()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(plan.streams)) if plan.streams > 1 else None
        for call in sides.values():
            for _ in range(plan.warm_up):
                call()
        sizes = block_sizes(plan, _pilot_seconds(sides, plan))
        began = time.perf_counter()
        for number, count in enumerate(sizes):
            if plan.seconds is not None and number and time.perf_counter() - began > plan.seconds:
                break
            for side in generator.sample(list(sides), len(sides)):
                seconds, calls = _run_block(sides[side], count, plan.streams, pool)
                measured.blocks.append(
                    Block(side=side, round=number, seconds=seconds, calls=tuple(calls))
                )
    return measured


def require_streams(count: int) -> None:
    """Raise AOTC-I027 unless there are 1 to `MAX_STREAMS` streams."""
    if not 1 <= count <= MAX_STREAMS:
        raise AotcError(
            "AOTC-I027",
            "the number of streams is out of range",
            expected=f"1..{MAX_STREAMS}",
            found=str(count),
        )


def block_sizes(plan: Plan, pilot_seconds: float) -> list[int]:
    """The calls of a block of one side, for each round; `pilot_seconds` is one call of each side.

    There are up to 30 rounds.  With several streams there are fewer, so that all are busy for most
    of a block: 10 at least, unless there are too few calls for each stream to have one.
    """
    runs = _MAX_CALLS if plan.runs is None else min(plan.runs, _MAX_CALLS)
    if plan.seconds is not None:
        # Streams share the cores, so that they may take as long as if they took turns.
        fits = max(1, int(plan.seconds / max(pilot_seconds, 1e-9)))
        runs = min(runs, max(fits, min(runs, MAX_ROUNDS)))
    if plan.streams == 1:
        rounds = min(runs, MAX_ROUNDS)
    else:
        busy = runs // (_CALLS_OF_A_STREAM * plan.streams)
        rounds = max(_MIN_ROUNDS, min(MAX_ROUNDS, busy))
        rounds = max(1, min(rounds, runs // plan.streams))
    size, more = divmod(runs, rounds)
    return [size + (number < more) for number in range(rounds)]


def _pilot_seconds(sides: Mapping[str, Call], plan: Plan) -> float:
    """Seconds of one call of each side, one after the other; 0 where nothing depends on it."""
    if plan.seconds is None:
        return 0.0
    started = time.perf_counter()
    for call in sides.values():
        call()
    return time.perf_counter() - started


def _run_block(
    call: Call, count: int, streams: int, pool: ThreadPoolExecutor | None
) -> tuple[float, list[TimedCall]]:
    """Seconds from the first call to the end of the last, and `count` timed calls."""
    collects = gc.isenabled()
    gc.disable()
    try:
        if pool is None:
            call()
            calls = _run_stream(call, 0, itertools.repeat(0, count))
        else:
            calls = _run_streams(call, count, streams, pool)
    finally:
        if collects:
            gc.enable()
    first = min(each.start for each in calls)
    return max(each.start + each.seconds for each in calls) - first, calls


def _run_stream(call: Call, stream: int, tickets: itertools.repeat[int]) -> list[TimedCall]:
    calls = []
    for _ in tickets:
        started = time.perf_counter()
        call()
        calls.append(TimedCall(stream, started, time.perf_counter() - started))
    return calls


def _run_streams(call: Call, count: int, streams: int, pool: ThreadPoolExecutor) -> list[TimedCall]:
    """`count` calls by all streams together, which begin at the same time."""
    # A shared iterator: its `__next__` is one step of the interpreter, so that no call is lost.
    tickets = itertools.repeat(0, count)
    together = threading.Barrier(streams)

    def end() -> None:
        together.abort()
        collections.deque(tickets, maxlen=0)

    def stream(number: int) -> list[TimedCall]:
        try:
            call()
            together.wait()
            return _run_stream(call, number, tickets)
        except BaseException:
            end()
            raise

    running: list[Future[list[TimedCall]]] = []
    try:
        running += [pool.submit(stream, number) for number in range(streams)]
        errors = [error for each in running if (error := each.exception()) is not None]
    except BaseException:
        # Else those that run would wait for those that do not, or go on after Ctrl-C.
        end()
        raise
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [timed for each in running for timed in each.result()]
