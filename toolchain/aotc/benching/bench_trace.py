"""The trace of a measurement: loads, warm-ups, timed calls by stream, and the profiled nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.benching.profiled_session import Profiled
from aotc.benching.rounds import Measured
from aotc.benching.sides import Side
from aotc.benching.trace_events import Span, trace_text
from aotc.contract.codec.parsing import Json

_MEASURED: Final = 1
_PROFILED: Final = 2
_STEPS: Final = 0
_PROFILED_RUNS: Final = 1
# More timed calls make a file that viewers open slowly, and show nothing more.
_MAX_CALLS: Final = 200_000
_MICROSECONDS: Final = 1e6


def bench_trace(
    artifact: str,
    sides: Sequence[Side],
    measured: Measured,
    streams: int,
    profiled: Profiled,
    facts: Mapping[str, Json],
) -> str:
    """The trace as JSON text; `facts` stand in its `otherData`.

    Process 1 is the measurement: a thread for what was done once, and one for each stream of each
    side.  Process 2 is the session that was profiled, on the same clock.
    """
    zero = min(step.start for side in sides for step in side.steps)
    threads = {(_MEASURED, _STEPS): "load and warm-up", (_PROFILED, _PROFILED_RUNS): "runs"}
    numbers: dict[tuple[str, int], int] = {}
    for side in sides:
        for stream in range(streams):
            number = len(numbers) + 1
            numbers[side.name, stream] = number
            threads[_MEASURED, number] = f"{side.name}, stream {stream + 1}"
    spans = [
        Span(
            name=f"{side.name}: {step.name}",
            category=step.name,
            start=step.start - zero,
            seconds=step.seconds,
            thread=_STEPS,
            process=_MEASURED,
        )
        for side in sides
        for step in side.steps
    ]
    calls = list(_calls(measured, numbers, zero))
    spans += calls[:_MAX_CALLS]
    spans += _nodes(profiled, zero)
    other = {**facts, "calls": len(calls), "calls_left_out": max(0, len(calls) - _MAX_CALLS)}
    processes = {
        _MEASURED: f"aotc bench {artifact}",
        _PROFILED: f"profiled session, variant {profiled.report.variant}",
    }
    return trace_text(spans, processes, threads, other)


def _calls(
    measured: Measured, numbers: Mapping[tuple[str, int], int], zero: float
) -> Iterator[Span]:
    for block in measured.blocks:
        for call in block.calls:
            yield Span(
                name=f"run {block.side}",
                category=block.side,
                start=call.start - zero,
                seconds=call.seconds,
                thread=numbers[block.side, call.stream],
                process=_MEASURED,
                args={"round": block.round + 1},
            )


def _nodes(profiled: Profiled, zero: float) -> Iterator[Span]:
    """The profiled runs, moved from the profile's clock to that of the trace.

    Times in a profile are cut to whole microseconds, so that a part may seem to end after the
    whole; then it ends with it, because viewers drop events that overlap without being nested.
    """
    offset = profiled.start - zero - profiled.runs[0].start / _MICROSECONDS
    for number, run in enumerate(profiled.runs, 1):
        yield _profiled_span(f"run {number}", "run", run.start, run.duration, offset, {})
        ends = [run.start + run.duration]
        for node in run.nodes:
            while len(ends) > 1 and node.start >= ends[-1]:
                ends.pop()
            ends.append(min(node.start + node.duration, ends[-1]))
            name, partition = profiled.names.get(node.node, (node.node, ""))
            args: dict[str, Json] = {"op": node.op, "provider": node.provider, "run": number}
            if partition:
                args["partition"] = partition
            duration = max(0.0, ends[-1] - node.start)
            yield _profiled_span(name, node.provider, node.start, duration, offset, args)


def _profiled_span(
    name: str, category: str, start: float, duration: float, offset: float, args: dict[str, Json]
) -> Span:
    return Span(
        name=name,
        category=category,
        start=max(0.0, start / _MICROSECONDS + offset),
        seconds=duration / _MICROSECONDS,
        thread=_PROFILED_RUNS,
        process=_PROFILED,
        args=args,
    )
