"""What records cost beside dataclasses: to define a class of them, to make and to compare them.

A start defines a hundred classes and makes a few records; a build makes some ten thousand.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from statistics import median

from aotc.base.records import field, record
from benchmarks.result import Result, Row, at_most, unjudged
from benchmarks.workshop import Workshop

ROUNDS = 61
DEFINED, MADE = 5, 1000
# A definition is what a start pays for, and must stay far below that of a dataclass.
DEFINITION_LIMIT = 0.1
# An instance is made in about a microsecond; a build that makes ten thousand must not notice.
KEYWORD_LIMIT, POSITION_LIMIT = 2.0, 2.5


def record_classes() -> tuple[type, type]:
    """Two classes of records: by keyword, and by position."""

    @record
    class Entry:
        path: str
        size: int
        sha256: str
        role: str = "model"
        chunks: tuple[str, ...] = ()
        notes: Mapping[str, str] = field(default_factory=dict)

    @record(kw_only=False)
    class Node:
        name: str
        kind: str
        inputs: tuple[str, ...]
        domain: str = ""

    return Entry, Node


def dataclass_classes() -> tuple[type, type]:
    """The same two as dataclasses."""

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Entry:
        path: str
        size: int
        sha256: str
        role: str = "model"
        chunks: tuple[str, ...] = ()
        notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Node:
        name: str
        kind: str
        inputs: tuple[str, ...]
        domain: str = ""

    return Entry, Node


def run(workshop: Workshop) -> Result:
    """Rounds of each, alternately, in CPU time of this process."""
    sides = {"record": _programs(record_classes), "dataclass": _programs(dataclass_classes)}
    samples: dict[str, list[float]] = {}
    for index in range(workshop.rounds(ROUNDS) + 1):
        for what in sides["record"]:
            for side, programs in sides.items():
                seconds = _timed(*programs[what])
                if index:
                    samples.setdefault(f"{side}: {what}", []).append(seconds)
    limits = {
        "define a class": DEFINITION_LIMIT,
        "make by keyword": KEYWORD_LIMIT,
        "make by keyword, half of it by default": KEYWORD_LIMIT,
        "make by position": POSITION_LIMIT,
    }
    rows = [_row(what, samples, limits.get(what)) for what in sides["record"]]
    return Result(rows=tuple(rows), samples=samples)


def _row(what: str, samples: dict[str, list[float]], limit: float | None) -> Row:
    sides = [samples[f"{side}: {what}"] for side in ("record", "dataclass")]
    # By round, as the machine's speed changes from one to the next.
    ratio = median(ours / theirs for ours, theirs in zip(*sides, strict=True))
    ours, theirs = map(median, sides)
    detail = f"{ours * 1e6:.2f} µs; dataclass {theirs * 1e6:.2f} µs"
    title = f"Records: {what}, of a dataclass's time"
    if limit is None:
        return unjudged(title, ratio, detail)
    return at_most(title, ratio, limit, detail)


def _timed(program: Callable[[], object], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        program()
    return (time.process_time() - started) / times


def _programs(
    define: Callable[[], tuple[type, type]],
) -> dict[str, tuple[Callable[[], object], int]]:
    """What is timed, and how often in a round."""
    entry, node = define()
    full = {
        **{"path": "a", "size": 1, "sha256": "b", "role": "c", "chunks": ("d",)},
        "notes": {"e": "f"},
    }
    required = {"path": "a", "size": 1, "sha256": "b"}
    one, same = node("a", "b", ("c",), "d"), node("a", "b", ("c",), "d")
    return {
        # Two classes at a time.
        "define a class": (define, DEFINED),
        "make by keyword": (lambda: entry(**full), MADE),
        "make by keyword, half of it by default": (lambda: entry(**required), MADE),
        "make by position": (lambda: node("a", "b", ("c",), "d"), MADE),
        "compare": (lambda: one == same, MADE),
        "hash": (lambda: hash(one), MADE),
    }
