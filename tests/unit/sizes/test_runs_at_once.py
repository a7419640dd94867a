"""References that run side by side: in order, not too many, and given up where that is too much."""

from __future__ import annotations

import threading
import time

import pytest

from aotc.base.errors import AotcError
from aotc.sizes.runs import TooManyAtOnceError, answers, runs_at_once

GIB = 1 << 30


def test_answers_come_in_order_and_errors_among_them() -> None:
    finished: list[int] = []

    def run(number: int) -> int:
        time.sleep(0.01 * (number % 3))
        if number == 4:
            raise AotcError("AOTC-R005", "ONNX Runtime failed", found="no")
        return number

    found = list(answers(range(9), run, 3, lambda: finished.append(1)))
    assert [item for item in found if not isinstance(item, AotcError)] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert isinstance(found[4], AotcError)
    assert len(finished) == 9


def test_no_more_run_than_were_asked_for() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=60)

    def run(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    list(answers(range(12), run, 3, lambda: None))
    assert most == 3


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        AotcError("AOTC-R005", "ONNX Runtime failed", found="std::bad_alloc"),
    ],
)
def test_too_much_at_once_ends_all(error: Exception) -> None:
    seen: list[int] = []

    def run(number: int) -> int:
        seen.append(number)
        if number == 1:
            raise error
        return number

    found = answers(range(100), run, 2, lambda: None)
    assert next(found) == 0
    with pytest.raises(TooManyAtOnceError):
        next(found)
    # What waited was not begun.
    assert len(seen) < 100


@pytest.mark.parametrize(
    ("count", "cores", "peak", "room", "expected"),
    [
        (20, 8, GIB, 100 * GIB, 8),
        (3, 8, GIB, 100 * GIB, 3),
        (20, 8, GIB, 12 * GIB, 4),
        (20, 8, GIB, 3 * GIB, 1),
        (20, 8, GIB, -GIB, 1),
        (20, 1, GIB, 100 * GIB, 1),
        (1, 8, GIB, 100 * GIB, 1),
        (0, 8, GIB, 100 * GIB, 1),
    ],
)
def test_as_many_as_cores_and_memory_allow(
    count: int, cores: int, peak: int, room: int, expected: int
) -> None:
    assert runs_at_once(count, cores=cores, peak=peak, room=room) == expected


def test_this_machine_is_asked() -> None:
    assert 1 <= runs_at_once(64) <= 64
