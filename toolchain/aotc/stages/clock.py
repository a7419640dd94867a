"""The time of each stage of a build, and progress reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


class Clock:
    """Seconds by stage; reports to `progress` what starts."""

    def __init__(self, progress: Progress | None = None) -> None:
        """Start the clock."""
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()
        self._progress = progress

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time one stage; stages of one name are added up."""
        self.announce(f"{name} {detail}".strip())
        started = time.monotonic()
        try:
            yield
        finally:
            # Of a build that fails as well: its report tells how long what it did took.
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def announce(self, what: str) -> None:
        """Report what starts now as progress."""
        if self._progress is not None:
            self._progress(what)

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started
