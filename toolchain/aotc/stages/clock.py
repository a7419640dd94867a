"""The time of each stage of a build, and progress reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from aotc.watching import Progress, Reporter


class Clock:
    """Seconds by stage; `reporter` tells what starts, what ends and how much is done."""

    def __init__(self, progress: Progress | None = None) -> None:
        """Start the clock."""
        self.seconds: dict[str, float] = {}
        self.reporter = Reporter(progress)
        self._started = time.monotonic()

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time one stage; stages of one name are added up."""
        self.reporter.begin(name, detail)
        started = time.monotonic()
        try:
            yield
        except BaseException:
            self.reporter.end(failed=True)
            raise
        else:
            self.reporter.end()
        finally:
            # Of a build that fails as well: its report tells how long what it did took.
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def announce(self, what: str) -> None:
        """Report what starts now as progress."""
        self.reporter.note(what)

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started
