"""Keeps captures apart from all else that this process does on GPUs through our sessions.

While a graph is captured, CUDA refuses allocations in every thread of the process, and what is put
on the stream of the capture becomes part of the graph.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class CaptureGate:
    """Any number of users, or one capture; a capture that waits goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._captures = 0
        self._capturing: int | None = None
        self._here = threading.local()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """While a session runs or is created; a thread may enter it again."""
        if getattr(self._here, "inside", False) or self._capturing == threading.get_ident():
            yield
            return
        with self._changed:
            while self._captures:
                self._changed.wait()
            self._users += 1
        self._here.inside = True
        try:
            yield
        finally:
            self._here.inside = False
            with self._changed:
                self._users -= 1
                if not self._users:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While a graph is captured; the thread may use sessions meanwhile."""
        with self._changed:
            self._captures += 1
            while self._users or self._capturing is not None:
                self._changed.wait()
            self._capturing = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._captures -= 1
                self._capturing = None
                self._changed.notify_all()


GATE = CaptureGate()
