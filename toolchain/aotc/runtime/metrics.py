"""Counters of loaded models in Prometheus' text format, by the optional `prometheus_client`.

Names follow Prometheus' conventions: base units, and `_total` for counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aotc.errors import AotcError, install_extra
from aotc.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class TelemetryCollector:
    """Reads telemetry whenever it is scraped; register it with a `CollectorRegistry`."""

    def __init__(self, models: Mapping[str, Telemetry]) -> None:
        """`models` are the telemetries to report, by the value of the label `model`."""
        self._models = dict(models)

    def collect(self) -> Iterator[Metric]:
        """All metric families, for all models."""
        core = _client().core
        counter, summary = core.CounterMetricFamily, core.SummaryMetricFamily
        gauge = core.GaugeMetricFamily
        by_variant = ["model", "variant"]
        requests = counter(
            "aotc_requests", "Calls that answered, by why a variant took them.",
            labels=[*by_variant, "route"],
        )  # fmt: skip
        given = counter(
            "aotc_input_elements", "Elements of inputs as they were given.", labels=by_variant
        )
        added = counter(
            "aotc_padding_elements", "Elements that padding added to inputs.", labels=by_variant
        )
        latency = summary("aotc_request_seconds", "Time of a call.", labels=by_variant)
        first = gauge(
            "aotc_first_request_seconds", "Time of a variant's first call.", labels=by_variant
        )
        outside = counter(
            "aotc_out_of_domain", "Calls in which a dim left the proven range.",
            labels=["model", "dim"],
        )  # fmt: skip
        rejects = counter(
            "aotc_rejects", "Calls that were refused or failed.", labels=["model", "code", "where"]
        )
        for model, telemetry in self._models.items():
            state = telemetry.snapshot()
            for name, counters in state.variants.items():
                for cause, calls in counters.routes.items():
                    requests.add_metric([model, name, cause], calls)
                given.add_metric([model, name], counters.elements_given)
                added.add_metric([model, name], counters.elements_added)
                latency.add_metric([model, name], counters.calls, counters.seconds)
                if counters.first_request_seconds is not None:
                    first.add_metric([model, name], counters.first_request_seconds)
            for dim, calls in state.out_of_domain_by_dim.items():
                outside.add_metric([model, dim], calls)
            for guard in state.guards:
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
