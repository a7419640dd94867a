"""How long each stage of a build took, and what begins now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


class Clock:
    """Seconds by stage; tells `progress` what begins."""

    def __init__(self, progress: Progress | None) -> None:
        """Nothing has begun yet."""
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """While one stage runs; stages of one name are added up."""
        if self._progress is not None:
            self._progress(f"{name} {detail}".strip())
        started = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
