"""Telemetry of one loaded model, kept in the process, never sent; and its text for Prometheus."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aotc.base.errors import AotcError, install_extra
from aotc.base.registry import Deferred
from aotc.spec.codec import Json, encode

if TYPE_CHECKING:
    from prometheus_client import core as prometheus

    from aotc.spec import traffic
else:
    prometheus = Deferred("prometheus_client.core")
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

    def call(
        self,
        seconds: float,
        outside: tuple[str, ...] = (),
        *,
        variant: str = "",
        cause: str = "exact",
        given: int = 0,
        added: int = 0,
    ) -> None:
        """Count an answered call that took `seconds`.

        `outside` are dims outside the proven range; `cause` is why `variant` took the call; `given`
        and `added` are the elements of its inputs, and those added by padding.
        """
        # On one line: what a tracer raises where a longer `with` ends would leave it locked.
        with self._lock: self._count(seconds, outside, variant, cause, given, added)  # fmt: skip # noqa: E701

    def _count(
        self,
        seconds: float,
        outside: tuple[str, ...],
        variant: str,
        cause: str,
        given: int,
        added: int,
    ) -> None:
        self._all.add(seconds)
        counters = self._variants.get(variant)
        if counters is not None:
            counters.latencies.add(seconds)
            counters.causes[cause] += 1
            counters.given += given
            counters.added += added
        if outside:
            self._outside_calls += 1
            self._outside.update(outside)

    def renew_lock(self) -> None:
        """In a forked child: a thread that it does not have may have held the lock."""
        self._lock = threading.Lock()

    def reject(self, code: str, where: str = "") -> None:
        """Count a call that was refused or failed, by reason code and place."""
        with self._lock: self._count_refusal(code, where)  # fmt: skip # noqa: E701

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
        for counters in self._variants.values():
            routes.update(counters.causes)
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


# Counters of loaded models in Prometheus' text format, by the optional `prometheus_client`.
#
# Names follow Prometheus' conventions: base units, and `_total` for counters.


class TelemetryCollector:
    """Reads telemetry whenever it is scraped; register it with a `CollectorRegistry`."""

    def __init__(self, models: Mapping[str, Telemetry]) -> None:
        """`models` are the telemetries to report, by the value of the label `model`."""
        self._models = dict(models)

    def collect(self) -> Iterator[prometheus.Metric]:
        """All metric families, for all models."""
        core = _client().core
        counter, summary = core.CounterMetricFamily, core.SummaryMetricFamily
        gauge = core.GaugeMetricFamily
        by_variant = ["model", "variant"]
        requests = counter(
            "aotc_calls", "Calls that answered, by why a variant took them.",
            labels=[*by_variant, "route"],
        )  # fmt: skip
        given = counter(
            "aotc_input_elements", "Elements of inputs as they were given.", labels=by_variant
        )
        added = counter(
            "aotc_padding_elements", "Elements that padding added to inputs.", labels=by_variant
        )
        latency = summary("aotc_call_seconds", "Time of a call.", labels=by_variant)
        first = gauge(
            "aotc_first_call_seconds", "Time of a variant's first call.", labels=by_variant
        )
        outside = counter(
            "aotc_out_of_domain", "Calls in which a dim left the proven range.",
            labels=["model", "dim"],
        )  # fmt: skip
        rejects = counter(
            "aotc_refusals", "Calls that were refused or failed.", labels=["model", "code", "where"]
        )
        for model, telemetry in self._models.items():
            state = telemetry.snapshot()
            for name, counters in state.variants.items():
                for cause, calls in counters.routes.items():
                    requests.add_metric([model, name, cause], calls)
                given.add_metric([model, name], counters.input_elements)
                added.add_metric([model, name], counters.padding_elements)
                latency.add_metric([model, name], counters.calls, counters.total_seconds)
                if counters.first_call_seconds is not None:
                    first.add_metric([model, name], counters.first_call_seconds)
            for dim, calls in state.out_of_domain_by_dim.items():
                outside.add_metric([model, dim], calls)
            for guard in state.refusals_by_place:
                rejects.add_metric([model, guard.code, guard.where], guard.calls)
        yield from (requests, given, added, latency, first, outside, rejects)


def prometheus_text(models: Mapping[str, Telemetry]) -> str:
    """The counters of `models`, by name, as a scrape would return them.

    Raises AOTC-I019 if `prometheus_client` is not installed.
    """
    client = _client()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(TelemetryCollector(models))
    return str(client.generate_latest(registry).decode())


def require_client() -> None:
    """Raise AOTC-I019 if `prometheus_client` is not installed."""
    _client()


def _client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise AotcError(
            "AOTC-I019",
            "prometheus_client cannot be imported",
            found=str(error),
            fix=install_extra("metrics"),
        ) from None
    return prometheus_client
