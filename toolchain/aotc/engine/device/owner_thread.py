"""One thread that runs a session for all callers.

ONNX Runtime keeps captured CUDA graphs with the thread that captured them: another thread would
capture anew, and hold memory of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from aotc.errors import AotcError

_T = TypeVar("_T")


class _Job(Generic[_T]):
    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], _T]) -> None:
        self.function = function
        self.result: _T | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class OwnerThread:
    """Runs functions one after the other in a thread of its own, which ends with `close`."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], _T]) -> _T:
        """What `function` returns or raises; raises AOTC-R005 after `close`."""
        if threading.current_thread() is self._thread:
            return function()
        job = _Job(function)
        with self._closing:
            if self._closed:
                raise AotcError("AOTC-R005", "the model is closed", fix="Load it again.")
            self._jobs.put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]

    def close(self) -> None:
        """End the thread when all that was called is done; later calls do nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def end(self) -> None:
        """`close`, without waiting."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)


def _work(jobs: queue.SimpleQueue[_Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job.result = job.function()
        except BaseException as error:
            job.error = error
        job.done.release()
        # An idle thread must not keep the arrays of the last call.
        del job
