"""Captures are alone, users are not, and neither is left behind by what fails."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from aotc.session.device import capture_gate
from aotc.session.device.capture_gate import CaptureGate

SECONDS = 60


@pytest.fixture
def gate() -> CaptureGate:
    return CaptureGate()


def begun(function: Callable[[], object]) -> threading.Thread:
    """A thread that is in nobody's way if it never ends."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def ends(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(SECONDS)
    return not any(thread.is_alive() for thread in threads)


def capture(gate: CaptureGate) -> None:
    with gate.alone():
        pass


def has_waiting_capture(gate: CaptureGate) -> bool:
    """Whether a capture that is not running began: there is nothing else to see of it."""
    return comes_true(lambda: gate._captures > gate._capturing)


def comes_true(seen: Callable[[], bool]) -> bool:
    for _ in range(SECONDS * 1000):
        if seen():
            return True
        threading.Event().wait(0.001)
    return False


def test_a_capture_waits_for_users_and_keeps_new_ones_out(gate: CaptureGate) -> None:
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def use(name: str) -> None:
        with gate.used(), gate.used():
            order.append(name)
            inside.set()
            leave.wait(SECONDS)

    def capture() -> None:
        with gate.alone(), gate.used():
            order.append("capture")

    first = begun(lambda: use("first"))
    assert inside.wait(SECONDS)
    capturing = begun(capture)
    assert has_waiting_capture(gate)
    second = begun(lambda: use("second"))
    assert order == ["first"]
    leave.set()
    assert ends(first, capturing, second)
    assert order == ["first", "capture", "second"]


def test_no_user_waits_for_two_captures(gate: CaptureGate) -> None:
    """Models that capture behind their loads take turns with the calls of others."""
    order: list[str] = []

    def capture() -> None:
        with gate.alone():
            order.append("capture")

    def use() -> None:
        with gate.used():
            order.append("use")

    with gate.used():
        captures = [begun(capture)]
        assert has_waiting_capture(gate)
        users = [begun(use) for _ in range(3)]
        assert comes_true(lambda: gate._kept_out == len(users))
        captures += [begun(capture) for _ in range(2)]
        assert comes_true(lambda: gate._captures == len(captures))
    assert ends(*captures, *users)
    assert order == ["capture", *["use"] * 3, "capture", "capture"]


@pytest.mark.parametrize("form", ["used", "alone"])
def test_what_fails_inside_leaves_it(gate: CaptureGate, form: str) -> None:
    def fail() -> None:
        with pytest.raises(ZeroDivisionError), getattr(gate, form)(), gate.used():
            raise ZeroDivisionError
        # The same thread is outside again: it has to wait for a capture.
        with gate.used():
            capturing.append(begun(lambda: capture(gate)))
            assert has_waiting_capture(gate)

    capturing: list[threading.Thread] = []
    assert ends(begun(fail))
    assert ends(*capturing)
    assert ends(begun(lambda: capture(gate)))


def test_a_capture_that_is_interrupted_while_it_waits_keeps_nobody_out(gate: CaptureGate) -> None:
    class Interrupted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    def interrupted() -> None:
        gate._changed = Interrupted(gate._lock)
        with pytest.raises(KeyboardInterrupt):
            capture(gate)
        gate._changed = threading.Condition(gate._lock)

    with gate.used():
        assert ends(begun(interrupted))

    def use() -> None:
        with gate.used():
            pass

    assert ends(begun(use))
    assert ends(begun(lambda: capture(gate)))


@pytest.mark.parametrize("form", ["used", "alone"])
@pytest.mark.parametrize("waited_for", [False, True], ids=["", "waited-for"])
def test_a_destructor_may_come_back_wherever_its_thread_is(
    gate: CaptureGate, form: str, waited_for: bool
) -> None:
    """Python runs it between any two lines: here, at each line of the gate itself."""
    lines: set[int] = set()
    coming_back = False

    class Gone:
        def __del__(self) -> None:
            with gate.used():
                pass

    def at_line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal coming_back
        # Its own lines are the gate's too.
        if event == "line" and not coming_back:
            coming_back = True
            lines.add(frame.f_lineno)
            Gone()
            coming_back = False
        return at_line

    def at_call(frame: FrameType, event: str, argument: object) -> Any:
        return at_line if frame.f_code.co_filename == capture_gate.__file__ else None

    def cross() -> None:
        sys.settrace(at_call)
        with getattr(gate, form)(), gate.used():
            if waited_for:
                others.append(begun(lambda: capture(gate)))
                assert has_waiting_capture(gate)
        sys.settrace(None)

    others: list[threading.Thread] = []
    assert ends(begun(cross))
    assert ends(*others)
    assert len(lines) > 10
    assert ends(begun(lambda: capture(gate)))
