"""Limits in CPU time of this process: what else the machine does makes nobody late.

The clock of a wall would end under load what passes on a quiet machine, and a proven range would
depend on it.  Who waits without end uses no CPU time; the limit of the whole step ends that.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End the process by SIGPROF, be it in native code, once the body has used so much CPU time."""
    # It counts user and system time of all threads; the signal's default action ends the process.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def cpu_deadline(seconds: float) -> Callable[[], bool]:
    """Whether this process has used `seconds` of CPU time since now."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end
