"""Keeps captures apart from all else that this process does on GPUs through our sessions.

While a graph is captured, CUDA refuses allocations in every thread of the process, and what is put
on the stream of the capture becomes part of the graph.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Here(threading.local):
    """The calling thread."""

    # How many uses and captures it is inside.
    depth = 0


class CaptureGate:
    """Any number of users, or one capture; a capture that waits goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._users = 0
        self._captures = 0
        self._capturing = False
        self._here = _Here()

    def used(self) -> CaptureGate:
        """Itself, to be entered while a session runs or is created, and entered again within."""
        # Every call passes here: a context manager made of a generator takes four times as long.
        return self

    def __enter__(self) -> None:
        here = self._here
        if not here.depth:
            with self._lock:
                while self._captures:
                    self._changed.wait()
                self._users += 1
        here.depth += 1

    def __exit__(self, *failure: object) -> None:
        here = self._here
        here.depth -= 1
        if not here.depth:
            with self._lock:
                self._users -= 1
                if self._captures and not self._users:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While a graph is captured; the thread may use sessions meanwhile."""
        with self._lock:
            self._captures += 1
            try:
                while self._users or self._capturing:
                    self._changed.wait()
            except BaseException:
                self._captures -= 1
                self._changed.notify_all()
                raise
            self._capturing = True
        self._here.depth += 1
        try:
            yield
        finally:
            self._here.depth -= 1
            with self._lock:
                self._captures -= 1
                self._capturing = False
                self._changed.notify_all()


GATE = CaptureGate()
