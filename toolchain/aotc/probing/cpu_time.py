"""Limits in CPU time of this process, which do not depend on the load of the machine.

With wall-clock limits a proven range would depend on that load.  A process that only waits uses no
CPU time; the time limit of the whole step ends it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End the process by SIGPROF, even in native code, if the block uses `seconds` of CPU time."""
    # ITIMER_PROF counts user and system time of all threads; SIGPROF ends the process by default.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def renew_cpu_limit(seconds: float) -> None:
    """Within `cpu_limit`: what was used so far no longer counts."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def cpu_deadline(seconds: float) -> Callable[[], bool]:
    """A function that tells whether this process has used `seconds` of CPU time from now on."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end
