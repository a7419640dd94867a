"""Telemetry of one loaded model, kept in the process; and the one place that tells of its calls."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.base.registry import Deferred
from aotc.runtime import reporting
from aotc.runtime.listener import Call, LoadedModel, LoadedVariant
from aotc.spec.codec import Json, encode

if TYPE_CHECKING:
    from aotc.spec import traffic
else:
    traffic = Deferred("aotc.spec.traffic")

# Number of latest calls whose latencies are kept, so that percentiles are current.
_WINDOW = 4096
_SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


class _Latencies:
    """The latest latencies, and the first."""

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.first: float | None = None
        self._window: deque[float] = deque(maxlen=_WINDOW)

    def add(self, seconds: float) -> None:
        if self.first is None:
            self.first = seconds
        self._window.append(seconds)
        self.calls += 1
        self.seconds += seconds

    def percentiles(self) -> dict[str, float]:
        ordered = sorted(self._window)
        return {name: percentile(ordered, share) for name, share in _SHARES if ordered}


class _Variant:
    """Counters of one variant."""

    def __init__(self) -> None:
        self.latencies = _Latencies()
        self.causes: Counter[str] = Counter()
        self.given = 0
        self.added = 0
        self.fallbacks: Counter[str] = Counter()
        self.captures = 0
        self.memory_failures: Counter[str] = Counter()
        self.copied_to = self.copied_from = 0
        self.timed_calls = self.timed_bytes = 0
        self.timed_seconds = 0.0
        self.loaded: LoadedVariant | None = None

    def fallen(self, missed_graph: bool) -> tuple[str, ...]:
        """In what a call of it does not run as the artifact prefers."""
        standing = self.loaded.fallbacks if self.loaded is not None else ()
        return (*standing, "graph") if missed_graph else standing

    def snapshot(self) -> traffic.VariantTelemetry:
        latencies = self.latencies.percentiles()
        first = self.latencies.first
        return traffic.VariantTelemetry(
            calls=self.latencies.calls,
            routes=dict(sorted(self.causes.items())),
            input_elements=self.given,
            padding_elements=self.added,
            padding_share=_share(self.given, self.added),
            first_call_seconds=first,
            first_call_delta_seconds=None if first is None else first - latencies["p50"],
            total_seconds=self.latencies.seconds,
            latency_seconds=latencies,
            fallbacks=dict(sorted(self.fallbacks.items())),
            captures=self.captures,
            memory_failures=dict(sorted(self.memory_failures.items())),
            transfers=traffic.TransferTelemetry(
                to_device_bytes=self.copied_to,
                from_device_bytes=self.copied_from,
                timed_calls=self.timed_calls,
                timed_bytes=self.timed_bytes,
                timed_seconds=self.timed_seconds,
            ),
            nodes=self.loaded.nodes if self.loaded is not None else {},
            misplaced_nodes=self.loaded.misplaced if self.loaded is not None else 0,
        )


class Telemetry:
    """Thread-safe counters of a model's calls, by variant, and of its refusals."""

    def __init__(self, variants: Sequence[str] = ()) -> None:
        """`variants` are the names of the loaded variants."""
        self._lock = threading.Lock()
        self._all = _Latencies()
        self._variants = {name: _Variant() for name in variants}
        self._outside: Counter[str] = Counter()
        self._outside_calls = 0
        self._rejects: Counter[str] = Counter()
        self._guards: Counter[tuple[str, str]] = Counter()
        self._memory_failures: Counter[str] = Counter()
        self._loaded: LoadedModel | None = None

    def begin(self, loaded: LoadedModel) -> None:
        """From now on, who listens is told of what is counted: they are the calls of `loaded`."""
        for variant in loaded.variants:
            self._variants[variant.name].loaded = variant
        self._loaded = loaded
        reporting.add(loaded)
        self.change(ready=False)

    def change(self, *, ready: bool) -> None:
        """The model is ready or not."""
        if self._loaded is not None and self._loaded.open:
            self._loaded.ready = ready
            reporting.tell_change(self._loaded)

    def end(self) -> None:
        """The model is closed."""
        if self._loaded is not None and self._loaded.open:
            self._loaded.open = self._loaded.ready = False
            reporting.tell_change(self._loaded)

    def call(
        self,
        seconds: float,
        outside: tuple[str, ...] = (),
        *,
        variant: str = "",
        cause: str = "exact",
        given: int = 0,
        added: int = 0,
        missed_graph: bool = False,
        copied: tuple[int, int] = (0, 0),
    ) -> None:
        """Count an answered call that took `seconds`, and tell who listens.

        `outside` are dims outside the proven range; `cause` is why `variant` took the call; `given`
        and `added` are the elements of its inputs, and those added by padding; `missed_graph` says
        that it ran without a captured graph where the artifact promises one; `copied` are bytes to
        and from the device.
        """
        counts = (seconds, outside, variant, cause, given, added, missed_graph, copied)
        # On one line: what a tracer raises where a longer `with` ends would leave it locked.
        with self._lock: self._count(*counts)  # fmt: skip # noqa: E701
        loaded = self._loaded
        if loaded is None:
            return
        if heard := reporting.awake():
            fallbacks = self._variants[variant].fallen(missed_graph)
            call = Call(variant, cause, seconds, given, added, outside, fallbacks, *copied)
            reporting.tell(lambda listener: listener.call(loaded, call), heard)
        if missed_graph:
            reporting.tell_once(loaded, variant, "graph")

    def _count(
        self,
        seconds: float,
        outside: tuple[str, ...],
        variant: str,
        cause: str,
        given: int,
        added: int,
        missed_graph: bool,
        copied: tuple[int, int],
    ) -> None:
        self._all.add(seconds)
        counters = self._variants.get(variant)
        if counters is not None:
            counters.latencies.add(seconds)
            counters.causes[cause] += 1
            counters.given += given
            counters.added += added
            counters.copied_to += copied[0]
            counters.copied_from += copied[1]
            for reason in counters.fallen(missed_graph):
                counters.fallbacks[reason] += 1
        if outside:
            self._outside_calls += 1
            self._outside.update(outside)

    def leave_to_parent(self) -> None:
        """In a forked child: a thread that it does not have may have held the lock."""
        self._lock = threading.Lock()
        if self._loaded is not None:
            # Nobody is told: whose locks may be held as well.
            self._loaded.open = self._loaded.ready = False

    def reject(self, code: str, where: str = "") -> None:
        """Count a call that was refused or failed, by reason code and place; tell who listens."""
        with self._lock: self._count_refusal(code, where)  # fmt: skip # noqa: E701
        loaded = self._loaded
        if loaded is not None:
            reporting.tell(lambda each: each.refused(loaded, code, where), reporting.awake())

    def lack_memory(self, code: str, variant: str = "") -> None:
        """Count a call that failed for want of memory, of `variant` if known; tell who listens.

        `reject` counts it among the others.
        """
        with self._lock: self._count_lack(code, variant)  # fmt: skip # noqa: E701
        loaded = self._loaded
        if loaded is not None:
            reporting.tell(
                lambda each: each.lacked_memory(loaded, variant, code), reporting.awake()
            )

    def _count_lack(self, code: str, variant: str) -> None:
        self._memory_failures[code] += 1
        if variant in self._variants:
            self._variants[variant].memory_failures[code] += 1

    def time_copies(self, variant: str, count: int, seconds: float) -> None:
        """Count the copies of a call that were timed: `count` bytes; tell who listens."""
        with self._lock: self._count_copies(variant, count, seconds)  # fmt: skip # noqa: E701
        loaded = self._loaded
        if loaded is not None:
            reporting.tell(
                lambda each: each.timed_copies(loaded, variant, count, seconds), reporting.awake()
            )

    def _count_copies(self, variant: str, count: int, seconds: float) -> None:
        counters = self._variants[variant]
        counters.timed_calls += 1
        counters.timed_bytes += count
        counters.timed_seconds += seconds

    def capture(self, variant: str) -> None:
        """Count a CUDA graph that was captured of a variant; tell who listens."""
        with self._lock: self._variants[variant].captures += 1  # fmt: skip # noqa: E701
        loaded = self._loaded
        if loaded is not None:
            reporting.tell(lambda each: each.captured(loaded, variant), reporting.awake())

    def _count_refusal(self, code: str, where: str) -> None:
        self._rejects[code] += 1
        self._guards[code, where] += 1

    @property
    def first_call_seconds(self) -> float | None:
        """Seconds of the first answered call; None before it."""
        return self._all.first

    @property
    def calls(self) -> int:
        """The number of answered calls."""
        return self._all.calls

    def outside(self) -> dict[str, int]:
        """The number of calls by the dim that was outside the proven range."""
        with self._lock: return dict(sorted(self._outside.items()))  # fmt: skip # noqa: E701

    def snapshot(self) -> traffic.TelemetryReport:
        """All counters at this moment; latencies in seconds, over the latest calls."""
        with self._lock: return self._snapshot()  # fmt: skip # noqa: E701

    def _snapshot(self) -> traffic.TelemetryReport:
        routes: Counter[str] = Counter()
        fallbacks: Counter[str] = Counter()
        for counters in self._variants.values():
            routes.update(counters.causes)
            fallbacks.update(counters.fallbacks)
        given = sum(counters.given for counters in self._variants.values())
        added = sum(counters.added for counters in self._variants.values())
        return traffic.TelemetryReport(
            calls=self._all.calls,
            out_of_domain=self._outside_calls,
            out_of_domain_by_dim=dict(sorted(self._outside.items())),
            refusals=dict(sorted(self._rejects.items())),
            refusals_by_place=tuple(
                traffic.GuardCount(code=code, where=where, calls=calls)
                for (code, where), calls in sorted(self._guards.items())
            ),
            routes=dict(sorted(routes.items())),
            input_elements=given,
            padding_elements=added,
            padding_share=_share(given, added),
            first_call_seconds=self._all.first,
            latency_seconds=self._all.percentiles(),
            variants={name: counters.snapshot() for name, counters in self._variants.items()},
            fallbacks=dict(sorted(fallbacks.items())),
            captures=sum(counters.captures for counters in self._variants.values()),
            memory_failures=dict(sorted(self._memory_failures.items())),
        )

    def to_dict(self) -> dict[str, Json]:
        """`snapshot` as JSON-like data."""
        found: dict[str, Json] = encode(self.snapshot(), full=True)
        return found


def _share(given: int, added: int) -> float:
    """Share of padding in all elements that were run."""
    return added / (given + added) if given + added else 0.0


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value with at least `share` of all values at or below it (nearest rank)."""
    rank = max(1, -int(-len(ordered) * share // 1))
    return ordered[min(rank, len(ordered)) - 1]
