"""Work that a signal's handler cannot break in the middle: another thread does it.

Python runs handlers of signals in the main thread, between any two of its steps, and what they
raise (KeyboardInterrupt, the time-out of a web server or a task queue) appears there: within a
`try` that takes it for an error of a file, between opening a file and keeping its number, in a
destructor, which swallows it, or in the midst of an import.  No care in each of these places closes
all gaps.  So what opens, locks or imports runs in a thread of its own, where no handler runs, and
the caller does nothing but wait: what interrupts it is raised once that work has ended, and what it
made is thrown away.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Interrupted(BaseException):
    """The caller was interrupted: raised in its work by `stop_if_interrupted`, and seen there only.

    As no error of ours, so that nothing takes it for a reason.
    """


def uninterrupted(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function that another thread runs while the caller waits.

    An exception that interrupts the caller is raised as soon as the function has ended, which it
    does early where it calls `stop_if_interrupted`; a result that can be closed is closed then.  A
    second one is raised at once.  Within such a function, others run as they are; so they do where
    the system has no more threads, and while the interpreter ends.
    """

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> T:
        if _here.work is not None or sys.is_finalizing():
            return function(*given, **named)
        # What the caller's context holds, such as the span of a trace, holds there too.
        context = copy_context()
        return _wait_for(_Work(lambda: context.run(function, *given, **named)))

    return called


def stop_if_interrupted() -> None:
    """Raise `Interrupted` in work whose caller was interrupted: for loops that take long."""
    work = _here.work
    if work is not None and work.interrupted:
        raise Interrupted


class _Here(threading.local):
    """The calling thread."""

    work: _Work[Any] | None = None
    """What it does for another one that waits."""


_here = _Here()


# The thread that was started last: with its last reference, Python code of `threading` runs, which
# would swallow an interruption, and so must not in the thread of the caller.
_latest: list[threading.Thread] = []


class _Work(Generic[T]):
    def __init__(self, do: Callable[[], T]) -> None:
        self.do = do
        self.interrupted = False
        # Each is held until the work has ended, and taken once, as an interruption may come between
        # taking a lock and letting it go.
        self.ended, self.ended_surely = allocate_lock(), allocate_lock()
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.ended.acquire()
        self.ended_surely.acquire()

    def begin(self) -> None:
        """Start the thread of the work; called in one that ends with this."""
        _latest.clear()
        try:
            self.thread = threading.Thread(target=self._run, name="aotc", daemon=False)
            _latest.append(self.thread)
            self.thread.start()
        except RuntimeError:
            self.thread = None
            self._run()  # The system has no more threads.

    def _run(self) -> None:
        _here.work = self
        try:
            self.results.append(self.do())
            if self.interrupted:
                self.throw_away()
        except BaseException as error:
            # Without this frame, which would keep the error alive, and it this frame.
            self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        finally:
            _here.work = None
            self.ended.release()
            self.ended_surely.release()

    def join(self) -> None:
        """Return when the thread of work that has ended is gone."""
        if self.thread is not None:
            self.thread.join()

    def throw_away(self) -> None:
        """Close the result, if there is one that can be closed."""
        while self.results:
            close = getattr(self.results.pop(), "close", None)
            if close is not None:
                close()


def _wait_for(work: _Work[T]) -> T:
    started: list[int] = []
    try:
        # `Thread.start`, which is written in Python, must not be interrupted either: it is called
        # in a thread that is started, and whose start is noted, by one step in C.
        started.extend(map(start_new_thread, (work.begin,), ((),)))
        work.ended.acquire()
        work.join()
        if work.error is None:
            return work.results[0]
    except BaseException as error:
        if not started and isinstance(error, RuntimeError) and "new thread" in str(error):
            return work.do()
        work.interrupted = True
        if started:
            work.ended_surely.acquire()
            work.join()
        work.throw_away()
        raise
    failure, work.error = work.error, None
    try:
        raise failure
    finally:
        del failure
