"""Work of another thread: its answers, and what becomes of it when its caller is interrupted."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

import pytest
from interruptions import Interruption, Stop

from aotc.base import interruptions
from aotc.base.interruptions import stop_if_interrupted, uninterrupted


@pytest.fixture
def alarm() -> Iterator[None]:
    """Alarms raise an exception that is also one of the system's, as some time-outs are."""

    class Late(Interruption, TimeoutError):
        pass

    def ring(number: int, frame: FrameType | None) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Made:
    """What work made."""

    closed = False

    def close(self) -> None:
        """Note it."""
        self.closed = True


def test_the_answer_and_the_arguments_are_those_of_the_function() -> None:
    @uninterrupted
    def halves(number: int, *, by: int = 2) -> tuple[float, str]:
        return number / by, threading.current_thread().name

    assert halves(3, by=4) == (0.75, "aotc")
    assert halves.__name__ == "halves"


def test_its_error_is_raised_as_it_is_and_kept_by_nobody() -> None:
    @uninterrupted
    def fails() -> None:
        raise Stop

    gc.disable()
    try:
        with pytest.raises(Stop) as caught:
            fails()
        kept = weakref.ref(caught.value)
        del caught
        assert kept() is None
    finally:
        gc.enable()


def test_work_within_work_needs_no_further_thread() -> None:
    @uninterrupted
    def inner() -> threading.Thread:
        return threading.current_thread()

    @uninterrupted
    def outer() -> tuple[threading.Thread, threading.Thread]:
        return threading.current_thread(), inner()

    first, second = outer()
    assert first is second is not threading.current_thread()


@pytest.mark.usefixtures("alarm")
def test_an_interruption_comes_when_the_work_has_ended_and_its_result_is_closed() -> None:
    made: list[Made] = []

    @uninterrupted
    def work() -> Made:
        time.sleep(0.2)
        made.append(Made())
        return made[0]

    before = set(threading.enumerate())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(Interruption):
        work()
    assert made[0].closed
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("alarm")
def test_work_that_looks_for_it_ends_early() -> None:
    seen: list[str] = []

    @uninterrupted
    def work() -> None:
        try:
            for _ in range(2000):
                stop_if_interrupted()
                time.sleep(0.01)
        except Exception:
            seen.append("taken for an error")
        finally:
            seen.append("undone")

    started = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(Interruption):
        work()
    assert seen == ["undone"]
    assert time.monotonic() - started < 5


@pytest.mark.usefixtures("alarm")
def test_a_second_interruption_waits_for_nothing_and_the_result_is_closed_all_the_same() -> None:
    made = Made()
    go = threading.Event()

    @uninterrupted
    def work() -> Made:
        go.wait(30)
        return made

    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    with pytest.raises(Interruption):
        work()
    signal.setitimer(signal.ITIMER_REAL, 0)
    go.set()
    for thread in threading.enumerate():
        if thread.name == "aotc":
            thread.join(30)
    assert made.closed


def test_without_a_further_thread_the_caller_works_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    @uninterrupted
    def here() -> threading.Thread:
        return threading.current_thread()

    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert here().name != "aotc"
    monkeypatch.setattr(interruptions, "start_new_thread", none_left)
    assert here() is threading.current_thread()


PROGRAM = """
import atexit
from aotc.base.interruptions import uninterrupted

class Last:
    def __del__(self):
        answer("at the very end")

@uninterrupted
def answer(when):
    print(when, flush=True)

atexit.register(answer, "at exit")
kept = Last()
kept.itself = kept
"""


def test_it_answers_while_the_interpreter_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n")[0] == "at exit"


def test_work_has_the_context_of_its_caller() -> None:
    span = ContextVar("span", default="none")

    @uninterrupted
    def work() -> str:
        return span.get()

    span.set("request 7")
    assert work() == "request 7"
