"""Keeps captures apart from all else that this process does on GPUs through our sessions.

While a graph is captured, CUDA refuses allocations in every thread of the process, and what is put
on the stream of the capture becomes part of the graph.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from aotc.base.errors import AotcError


class _ThreadState(threading.local):
    """The calling thread."""

    # How many uses and captures it is inside.
    depth = 0
    # Whether it waits for the others to leave, to capture.
    waits = False


class CaptureGate:
    """Any number of users, or one capture; a capture that waits goes first, but for users that have
    waited for another: no user waits for two.

    Destructors, and handlers of signals, may come back to it in the midst of what their thread does
    here: so its lock is reentrant, and a thread's depth covers all the time that it is counted.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._users = 0
        self._captures = 0
        self._capturing = False
        self._ended = 0
        # Users that wait, and of them those that waited while a capture ended.
        self._kept_out = 0
        self._overdue = 0
        self._here = _ThreadState()

    def used(self) -> CaptureGate:
        """Itself, to be entered while a session runs or is created, and entered again within."""
        # Every call passes here: a context manager made of a generator takes twice as long.
        return self

    def __enter__(self) -> None:
        here = self._here
        if here.depth:
            here.depth += 1
            return
        with self._lock:
            if self._captures:
                self._wait(here)
            here.depth = 1
            self._users += 1

    def __exit__(self, *failure: object) -> None:
        here = self._here
        if here.depth > 1:
            here.depth -= 1
            return
        with self._lock:
            self._users -= 1
            if self._captures and not self._users:
                self._changed.notify_all()
            here.depth = 0

    def _wait(self, here: _ThreadState) -> None:
        ended = self._ended
        self._kept_out += 1
        try:
            # What comes back while its own thread waits to capture must not wait for that.
            while self._capturing or (self._captures and self._ended == ended and not here.waits):
                self._changed.wait()
        finally:
            self._kept_out -= 1
            if self._ended != ended:
                self._overdue -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While a graph is captured; the thread may use sessions meanwhile."""
        here = self._here
        with self._lock:
            here.waits = True
            self._captures += 1
            try:
                while self._users or self._capturing or self._overdue:
                    self._changed.wait()
                here.depth += 1
                self._capturing = True
            except BaseException:
                self._captures -= 1
                self._changed.notify_all()
                raise
            finally:
                here.waits = False
        try:
            yield
        finally:
            with self._lock:
                self._capturing = False
                self._captures -= 1
                self._ended += 1
                self._overdue = self._kept_out
                self._changed.notify_all()
                here.depth -= 1


GATE = CaptureGate()
if hasattr(os, "register_at_fork"):
    # Its users in other threads are not in the child, and what locked it may be one of them.
    os.register_at_fork(after_in_child=GATE.__init__)  # type: ignore[misc]


def do_nothing(*_: object) -> None:
    """What is called after a capture, or a timed copy, where nobody counts them."""


def capture_refused(why: str, where: str) -> AotcError:
    """AOTC-R024: ONNX Runtime, or a value on the CPU, does not allow a graph."""
    return AotcError("AOTC-R024", "a CUDA graph cannot be captured", where=where, found=why)
