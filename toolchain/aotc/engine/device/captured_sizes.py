"""The captured sizes of one session: bounded by count and memory, the least used dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from aotc.engine.device.fixed_run import FixedRun

Key = tuple[int, ...]

# ONNX Runtime frees no captured graph before its session: this bounds what dropped ones leave.
_MAX_DROPPED: Final = 256


class CapturedSizes:
    """Captured runs by their sizes; not thread-safe."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._runs: OrderedDict[Key, tuple[FixedRun, int]] = OrderedDict()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, key: Key) -> bool:
        return key in self._runs

    def __iter__(self) -> Iterator[Key]:
        """Sizes, the least recently used first."""
        return iter(tuple(self._runs))

    @property
    def full(self) -> bool:
        """Whether no further size may be captured, not even in place of another."""
        return self.dropped >= _MAX_DROPPED

    def get(self, key: Key) -> FixedRun | None:
        """The run of these sizes, which is now the most recently used."""
        found = self._runs.get(key)
        if found is None:
            return None
        self._runs.move_to_end(key)
        return found[0]

    def add(self, key: Key, run: FixedRun, count: int) -> tuple[Key, ...]:
        """Keep a run that takes `count` bytes; the sizes that were dropped for it."""
        _, before = self._runs.pop(key, (None, 0))
        self.bytes -= before
        self._runs[key] = (run, count)
        self.bytes += count
        dropped = []
        while len(self._runs) > 1 and (
            len(self._runs) > self._max_count or self.bytes > self._max_bytes
        ):
            oldest, (_, freed) = self._runs.popitem(last=False)
            self.bytes -= freed
            dropped.append(oldest)
        self.dropped += len(dropped)
        return tuple(dropped)

    def clear(self) -> None:
        """Forget all runs, whose buffers are freed."""
        self._runs.clear()
        self.bytes = 0
