"""Runs of one dynamic session as CUDA graphs, to measure what a captured size costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

# One run at the sizes that it was made for.
FixedRun = Callable[[], None]


class CapturedRuns(Protocol):
    """A session on CUDA that captures a size, and replays it."""

    def at(self, sizes: Mapping[str, int], given: Mapping[str, Any]) -> FixedRun:
        """Capture a run of the inputs `given`, of `sizes`; the result replays it.

        What it captured before may be released.  Raises AOTC-S005 if the size does not run.
        """


# Opens the session of a serialized model.
OpenCapturedRuns = Callable[[bytes], CapturedRuns]
