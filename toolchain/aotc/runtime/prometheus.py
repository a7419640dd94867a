"""Metrics of loads and calls for Prometheus, by the optional `prometheus_client`.

Names follow Prometheus' conventions: base units, and `_total` for counters.  They are written as
things happen, so that several processes share one truth: where $PROMETHEUS_MULTIPROC_DIR is set,
each writes into files of that folder, and whoever is scraped reads all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from aotc.base.errors import AotcError, install_extra
from aotc.base.registry import Deferred
from aotc.runtime import reporting
from aotc.runtime.listener import Call, Listener, LoadedModel, LoadedVariant, TimedLoad

if TYPE_CHECKING:
    import prometheus_client as prometheus
else:
    prometheus = Deferred("prometheus_client")

# Of the variable, `prometheus_client` looks at its presence.
_SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"
_DURATION: Final = "aotc_call_duration_seconds"
_HELP: Final = "Time of calls that answered."
_VARIANT: Final = ("model", "variant")

_COUNTERS: Final = {
    "aotc_calls": ("Calls that answered, by why a variant took them.", (*_VARIANT, "route")),
    "aotc_refusals": ("Calls that were refused or failed.", ("model", "code", "where")),
    "aotc_out_of_domain": ("Calls in which a dim left the proven range.", ("model", "dim")),
    "aotc_input_elements": ("Elements of inputs as they were given.", _VARIANT),
    "aotc_padding_elements": ("Elements that padding added to inputs.", _VARIANT),
    "aotc_fallbacks": (
        "Calls that did not run as the artifact prefers, by what was otherwise.",
        (*_VARIANT, "reason"),
    ),
    "aotc_memory_failures": ("Calls that failed for want of memory.", (*_VARIANT, "code")),
    "aotc_transfer_bytes": (
        "Bytes of inputs and outputs that calls copied to and from the device.",
        (*_VARIANT, "direction"),
    ),
    "aotc_timed_transfer_bytes": ("Of these, bytes of copies that were timed.", _VARIANT),
    "aotc_timed_transfer_seconds": ("Time of the copies that were timed.", _VARIANT),
    "aotc_captures": ("CUDA graphs that were captured.", _VARIANT),
    "aotc_loads": ("Loads that ended well.", ("model",)),
    "aotc_load_failures": ("Loads that failed.", ("model", "code")),
}
# With how the values of several processes are put together; what a dead one wrote does not count.
_GAUGES: Final = {
    "aotc_model_info": (
        "1 for each loaded variant.",
        ("model", "artifact", "version", "variant", "provider", "precision", "verdict"),
        "livemax",
    ),
    "aotc_models_loaded": ("Models that are loaded and not closed.", ("model",), "livesum"),
    "aotc_models_ready": ("Of these, those that are ready.", ("model",), "livesum"),
    "aotc_load_duration_seconds": (
        "Time of the stages of the latest load; the longest of all processes.",
        ("model", "stage"),
        "livemax",
    ),
    "aotc_nodes": ("Nodes as observed at load.", (*_VARIANT, "provider"), "livemax"),
    "aotc_first_call_seconds": ("Time of a variant's first call.", _VARIANT, "livemax"),
    "aotc_nodes_misplaced": (
        "Of these, those that are not where the artifact promises.",
        _VARIANT,
        "livemax",
    ),
}


class PrometheusMetrics:
    """Metrics of all models of this process, from here on; make it before they are loaded."""

    def __init__(
        self, registry: prometheus.CollectorRegistry | Literal["default"] | None = "default"
    ) -> None:
        """`registry` is where they are registered; "default" is the client's, None is nowhere.

        Raises AOTC-I019 if `prometheus_client` is not installed, and I001 if
        $PROMETHEUS_MULTIPROC_DIR is no folder.
        """
        self._client = _client()
        self._registry: Any = self._client.REGISTRY if registry == "default" else registry
        self._sink = _sink(self._client)
        if self._registry is not None:
            self._registry.register(self)
        reporting.listen(self._sink)

    def collect(self) -> Iterator[prometheus.Metric]:
        """All metric families of this process, as a registry asks for them."""
        return self._sink.collect()

    def text(self) -> str:
        """What a scrape returns: of this process, or of all that share a folder."""
        client = self._client
        registry = client.CollectorRegistry(auto_describe=False)
        if _SHARED in os.environ:
            self._sink.count_models()
            from prometheus_client.multiprocess import MultiProcessCollector

            # It registers itself.
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        else:
            registry.register(self)
        return str(client.generate_latest(registry).decode())

    def close(self) -> None:
        """Take them from the registry, and count no more."""
        reporting.leave(self._sink)
        if self._registry is not None:
            self._registry.unregister(self)


class _Sink(Listener):
    """The instruments, which are told."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # In no registry: histograms of one name may have other buckets for each model.
        self._counters = {
            name: client.Counter(name, text, labels, registry=None)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._gauges = {
            name: client.Gauge(name, text, labels, registry=None, multiprocess_mode=mode)
            for name, (text, labels, mode) in _GAUGES.items()
        }
        self._histograms: dict[tuple[float, ...], prometheus.Histogram] = {}
        self._counts: dict[tuple[str, ...], prometheus.Counter] = {}
        self._times: dict[tuple[object, ...], prometheus.Histogram] = {}
        self._begun: set[tuple[str, ...]] = set()
        self._stated: set[tuple[str, ...]] = set()

    def collect(self) -> Iterator[prometheus.Metric]:
        self.count_models()
        for instrument in (*self._counters.values(), *self._gauges.values()):
            yield from instrument.collect()
        histograms = tuple(self._histograms.values())
        if histograms:
            (family,) = histograms[0].collect()
            for other in histograms[1:]:
                family.samples += [sample for each in other.collect() for sample in each.samples]
            yield family

    def loaded(self, load: TimedLoad, model: LoadedModel) -> None:
        self._count("aotc_loads", model.name)
        for stage in load.stages:
            self._set("aotc_load_duration_seconds", stage.seconds, model.name, stage.name)

    def failed(self, load: TimedLoad, code: str, where: str) -> None:
        self._count("aotc_load_failures", load.label, code)

    def changed(self, model: LoadedModel) -> None:
        self.count_models()

    def count_models(self) -> None:
        """State which models are open now; nobody tells of one that was dropped, or left by a fork.

        What is no more is removed, or 0: counts, and all in a shared folder, where nothing can be.
        """
        found: dict[tuple[str, ...], int] = {}
        for model in reporting.open_models():
            for name, by in (("aotc_models_loaded", 1), ("aotc_models_ready", model.ready)):
                found[name, model.name] = found.get((name, model.name), 0) + by
            for variant in model.variants:
                found["aotc_model_info", *_info(model, variant)] = 1
                found["aotc_nodes_misplaced", model.name, variant.name] = variant.misplaced
                for provider, nodes in variant.nodes.items():
                    found["aotc_nodes", model.name, variant.name, provider] = nodes
        for name, *labels in self._stated - found.keys():
            if _SHARED in os.environ or name in ("aotc_models_loaded", "aotc_models_ready"):
                self._set(name, 0, *labels)
            else:
                self._gauges[name].remove(*labels)
        # In place, and never less: of two threads at once, one would forget what the other states.
        self._stated.update(found)
        for (name, *labels), value in found.items():
            self._set(name, value, *labels)

    def call(self, model: LoadedModel, call: Call) -> None:
        labels = (model.name, call.variant)
        self._durations(model.latency_buckets, labels).observe(call.seconds)
        self._count("aotc_calls", *labels, call.route)
        self._count("aotc_input_elements", *labels, by=call.given)
        self._count("aotc_padding_elements", *labels, by=call.added)
        for direction, copied in (("to", call.copied_to), ("from", call.copied_from)):
            if copied:
                self._count("aotc_transfer_bytes", *labels, direction, by=copied)
        for dim in call.outside:
            self._count("aotc_out_of_domain", model.name, dim)
        for reason in call.fallbacks:
            self._count("aotc_fallbacks", *labels, reason)
        if (model.artifact, *labels) not in self._begun:
            self._begun.add((model.artifact, *labels))
            self._set("aotc_first_call_seconds", call.seconds, *labels)

    def refused(self, model: LoadedModel, code: str, where: str) -> None:
        self._count("aotc_refusals", model.name, code, where)

    def lacked_memory(self, model: LoadedModel, variant: str, code: str) -> None:
        self._count("aotc_memory_failures", model.name, variant, code)

    def timed_copies(self, model: LoadedModel, variant: str, count: int, seconds: float) -> None:
        self._count("aotc_timed_transfer_bytes", model.name, variant, by=count)
        self._count("aotc_timed_transfer_seconds", model.name, variant, by=seconds)

    def captured(self, model: LoadedModel, variant: str) -> None:
        self._count("aotc_captures", model.name, variant)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        # The client takes several microseconds to find one by its labels.
        found = self._counts.get((name, *labels))
        if found is None:
            found = self._counts[name, *labels] = self._counters[name].labels(*labels)
        found.inc(by)

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._gauges[name].labels(*labels).set(value)

    def _durations(
        self, buckets: tuple[float, ...], labels: tuple[str, str]
    ) -> prometheus.Histogram:
        found = self._times.get((buckets, *labels))
        if found is None:
            # Without a lock, which a fork might find taken: of two made at once, one is forgotten.
            every = self._histograms.setdefault(
                buckets,
                self._client.Histogram(_DURATION, _HELP, _VARIANT, registry=None, buckets=buckets),
            )
            found = self._times[buckets, *labels] = every.labels(*labels)
        return found


# Of processes that share a folder: two of one process would count into the same file.
_shared: list[_Sink] = []


def _sink(client: Any) -> _Sink:
    if _SHARED not in os.environ:
        return _Sink(client)
    folder = os.environ[_SHARED]
    if not Path(folder).is_dir():
        # The client would fail at each call, in which nobody sees it.
        raise AotcError(
            "AOTC-I001",
            f"{_SHARED} is not a folder",
            where=folder,
            fix="Create it empty before Python starts.",
        )
    if not _shared:
        _shared.append(_Sink(client))
    return _shared[0]


def _info(model: LoadedModel, variant: LoadedVariant) -> Sequence[str]:
    return (
        *(model.name, model.artifact, model.version, variant.name),
        *(variant.provider, variant.precision, model.verdict),
    )


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise AotcError(
            "AOTC-I019",
            "prometheus_client cannot be imported",
            found=str(error),
            fix=install_extra("metrics"),
        ) from None
    return prometheus_client
