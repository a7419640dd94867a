"""A trial of a variant's captured CUDA graphs, all in a process of its own, as a load holds them.

A graph that is replayed after its session ran other sizes may crash, and then the GPU's context is
lost for the process; or it may answer with what the other sizes left behind (ADR 96).  One graph
alone shows neither.
"""

from __future__ import annotations

import faulthandler
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import record
from aotc.session.device.fixed_run import agree
from aotc.session.worker import tell_steps
from aotc.spec.shapes import sizes_in_words

if TYPE_CHECKING:
    from aotc.graph.values import Data
    from aotc.session.device.capturing_runner import CapturingRunner


# Replays of all sizes together, where they are quick; and of each size at least.
_REPLAYS: Final = 200
_LEAST: Final = 4
# Work of all replays: some ten seconds of a GPU, and a few of copies and comparisons on the host.
_MOST_FLOPS: Final = 2e15
_MOST_BYTES: Final = 2 << 30
# How many inputs each size is run with.
_TURNS: Final = 3
# How often a size that is not captured runs between the replays.
_OTHER_SHARE: Final = 0.125
# Runs without a graph, and replays, that tell whether a model repeats its answers to the bit.
_REPEATS: Final = 8
# A replay that takes longer, in seconds and in longest captures, has hung: a kernel that was freed
# may never end.  What runs without a graph may plan kernels for as long as it likes.
_HUNG_SECONDS: Final = 60.0
_HUNG_CAPTURES: Final = 20.0


@record
class Case:
    """Sizes of calls, the files of inputs that are resized to them, and the work of one call."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    captured: bool
    flops: float
    bytes: float


@record
class Step:
    """What the trial does with a case: capture it, or run it with its inputs moved by `turn`."""

    captures: bool
    case: int
    turn: int = 0


def planned_steps(cases: Sequence[Case]) -> list[Step]:
    """Each captured case is captured; then cases are run in a random order that is always equal."""
    captured = [index for index, case in enumerate(cases) if case.captured]
    others = [index for index, case in enumerate(cases) if not case.captured]
    flops = sum(cases[index].flops for index in captured) / len(captured)
    moved = sum(cases[index].bytes for index in captured) / len(captured)
    count = min(_REPLAYS, int(_MOST_FLOPS / max(flops, 1)), int(_MOST_BYTES / max(moved, 1)))
    count = max(count, _LEAST * len(captured))
    chance = np.random.default_rng(0)
    steps = [Step(captures=True, case=index) for index in captured]
    for _ in range(count):
        among = others if others and chance.random() < _OTHER_SHARE else captured
        case, turn = int(chance.choice(among)), int(chance.integers(_TURNS))
        steps.append(Step(captures=False, case=case, turn=turn))
    return steps


def step_in_words(cases: Sequence[Case], steps: Sequence[Step], done: int) -> str:
    """At which step a trial ended, and what was captured by then."""
    if not 0 <= done < len(steps):
        return "before the first capture"
    sizes = _words(cases[steps[done].case].sizes)
    before = "; ".join(_words(cases[step.case].sizes) for step in steps[:done] if step.captures)
    if steps[done].captures:
        return f"at the capture of {sizes}" + (f", after {before}" if before else "")
    first = sum(step.captures for step in steps)
    number = f"{done - first + 1} of {len(steps) - first}"
    return f"at replay {number}, of {sizes} ({before} captured)"


def _words(sizes: Mapping[str, int]) -> str:
    return sizes_in_words(sizes) or "the only size"


def what_is_wrong(
    runner: CapturingRunner,
    cases: Sequence[Case],
    steps: Sequence[Step],
    inputs_of: Callable[[Case], Mapping[str, Any]],
) -> str:
    """Take the steps, each told by its number before; what is wrong at the last, "" if nothing is.

    The first answer for the same inputs is compared with a run without a graph, and later ones with
    the first, bit by bit, unless the bits differ with nothing between two replays.  Runs without a
    graph come first, one size after the other: a session may plan kernels anew each time that it
    meets another size than before, which takes longer than all else.
    A replay that hangs ends the process.  Raises what the runner does.
    """
    firsts: dict[tuple[int, int], list[bytes]] = {}
    longest = 0.0

    @cache
    def moved(index: int, turn: int) -> dict[str, Any]:
        return dict(_moved(inputs_of(cases[index]), turn))

    wanted = sorted({(step.case, step.turn) for step in steps if not step.captures})
    computed = {key: runner.run_without_graph(moved(*key), cases[key[0]].sizes) for key in wanted}
    for number, step in enumerate(steps):
        tell_steps(number, len(steps))
        key, sizes = (step.case, step.turn), cases[step.case].sizes
        if step.captures:
            started = time.monotonic()
            runner.capture(moved(*key), sizes)
            longest = max(longest, time.monotonic() - started)
            continue
        hung = max(_HUNG_SECONDS, _HUNG_CAPTURES * longest) if cases[step.case].captured else None
        wrong, firsts[key] = _compared(
            runner, moved(*key), sizes, firsts.get(key), hung, computed.pop(key, None)
        )
        if wrong:
            return wrong
    tell_steps(len(steps), len(steps))
    return ""


@contextmanager
def _ended_after(seconds: float | None) -> Iterator[None]:
    """End the process, and say where it was, if the body takes longer; None: it may."""
    if seconds is None:
        yield
        return
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _moved(inputs: Mapping[str, Any], turn: int) -> Iterator[tuple[str, Any]]:
    """The inputs with their elements moved by `turn` places, which keeps them valid mostly."""
    for name, array in inputs.items():
        yield name, np.roll(array.reshape(-1), turn).reshape(array.shape) if turn else array


def _compared(
    runner: CapturingRunner,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    first: list[bytes] | None,
    hung: float | None = None,
    computed: list[Data] | None = None,
) -> tuple[str, list[bytes]]:
    """What is wrong with an answer, and the digests of its outputs, or of the `first` answer's.

    A replay that takes longer than `hung` seconds ends the process.  `computed` is the answer of a
    run without a graph, if there is one already.
    """
    with _ended_after(hung):
        found = runner.run(inputs, None, sizes)
    digests = _digests(found)
    if digests == first:
        return "", digests
    if computed is None:
        computed = runner.run_without_graph(inputs, sizes)
    if wrong := _apart(runner, found, computed):
        return wrong, digests
    if first is None:
        return "", digests
    # A model that draws numbers, or sums in any order, never repeats the bits.
    again = (runner.run_without_graph(inputs, sizes) for _ in range(_REPEATS))
    if any(_digests(each) != _digests(computed) for each in again):
        return "", first
    # Its graph may sum in any order too, which runs between have no part in.  The first of these
    # replays comes after other runs.
    last: list[bytes] | None = None
    for number in range(_REPEATS):
        with _ended_after(hung):
            found = runner.run(inputs, None, sizes)
        if wrong := _apart(runner, found, computed):
            return wrong, first
        before, last = last, _digests(found)
        if number > 1 and last != before:
            return "", first
    names = [output.name for output in runner.session.get_outputs()]
    changed = [n for n, one, other in zip(names, digests, first, strict=True) if one != other]
    return f"output {changed[0]!r} differs in bits from the first replay of these inputs", first


def _apart(runner: CapturingRunner, found: Sequence[Any], computed: Sequence[Any]) -> str:
    """Which output is further from a run without a graph than the tolerance; "" if none is."""
    for output, one, other in zip(runner.session.get_outputs(), found, computed, strict=True):
        if not agree(np.asarray(one), np.asarray(other)):
            return f"output {output.name!r} is not what a run without a graph computes"
    return ""


def _digests(outputs: Sequence[Any]) -> list[bytes]:
    return [
        hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()
        for array in outputs
    ]
