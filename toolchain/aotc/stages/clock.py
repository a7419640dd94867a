"""How long each stage of a build took, and what begins now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


class Clock:
    """Seconds by stage; tells `progress` what begins."""

    def __init__(self, progress: Progress | None = None) -> None:
        """Nothing has begun yet."""
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()
        self._progress = progress

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """While one stage runs; stages of one name are added up."""
        self.tell(f"{name} {detail}".strip())
        started = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def tell(self, what: str) -> None:
        """Say what begins, to whoever watches."""
        if self._progress is not None:
            self._progress(what)

    def passed(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started
