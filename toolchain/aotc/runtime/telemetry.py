"""Telemetry of one loaded model: counters and latencies, kept in the process and sent nowhere."""

from __future__ import annotations

import threading
from array import array
from collections import Counter

from aotc.contract.parsing import Json

# Latencies kept: of the latest calls, so that percentiles speak of now.
_WINDOW = 4096


class Telemetry:
    """Thread-safe counters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._outside: Counter[str] = Counter()
        self._outside_calls = 0
        self._rejects: Counter[str] = Counter()
        self._latencies = array("d")
        self._first: float | None = None

    def call(self, seconds: float, outside: tuple[str, ...] = ()) -> None:
        """Count a call that answered, and the dims that were outside of the proven range."""
        with self._lock:
            if self._first is None:
                self._first = seconds
            if len(self._latencies) < _WINDOW:
                self._latencies.append(seconds)
            else:
                self._latencies[self._calls % _WINDOW] = seconds
            self._calls += 1
            if outside:
                self._outside_calls += 1
                self._outside.update(outside)

    def reject(self, code: str) -> None:
        """Count a call that was refused or failed, by its reason code."""
        with self._lock:
            self._rejects[code] += 1

    @property
    def first_request_seconds(self) -> float | None:
        """Seconds of the first call that answered; None before it."""
        return self._first

    @property
    def calls(self) -> int:
        """Calls that answered."""
        return self._calls

    def outside(self) -> dict[str, int]:
        """Calls by the dim that lay outside of the proven range."""
        with self._lock:
            return dict(sorted(self._outside.items()))

    def to_dict(self) -> dict[str, Json]:
        """All counters; latencies in seconds, over the latest calls."""
        with self._lock:
            latencies = sorted(self._latencies)
            return {
                "calls": self._calls,
                "out_of_domain": self._outside_calls,
                "out_of_domain_by_dim": dict(sorted(self._outside.items())),
                "rejects": dict(sorted(self._rejects.items())),
                "first_request_seconds": self._first,
                "latency_seconds": {
                    name: percentile(latencies, share)
                    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
                    if latencies
                },
            }


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value with at least `share` of all values at or below it (nearest rank)."""
    rank = max(1, -int(-len(ordered) * share // 1))
    return ordered[min(rank, len(ordered)) - 1]
