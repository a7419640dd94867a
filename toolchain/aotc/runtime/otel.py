"""Spans and measurements of loads and calls, by the API of OpenTelemetry (extra `otel`).

Nothing has to be switched on: who sets a provider has imported the API, and where nobody has, a
call finds that out in some nanoseconds.  Spans are made when what they tell of has ended.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aotc.runtime.listener import LATENCY_BUCKETS, Call, Listener, LoadedModel, TimedLoad
from aotc.spec.versions import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Tracer

_TRACE: Final = "opentelemetry.trace"
_METRICS: Final = "opentelemetry.metrics"
# Asking for a provider takes a microsecond: where none was set, it is done once in so many seconds.
_SECONDS: Final = 1.0


class _Instruments(NamedTuple):
    tracer: Tracer
    calls: Histogram
    refusals: Counter
    fallbacks: Counter
    given: Counter
    added: Counter
    captures: Counter
    memory_failures: Counter
    copied: Counter
    timed_bytes: Counter
    timed_seconds: Counter
    loads: Histogram


class OpenTelemetry(Listener):
    """Tells the providers that the application has set, if any."""

    def __init__(self) -> None:
        self._instruments: _Instruments | None = None
        self._asked = -_SECONDS

    def awake(self) -> bool:
        """Whether there was a provider within the last second."""
        if self._instruments is not None:
            return True
        if _TRACE not in sys.modules and _METRICS not in sys.modules:
            return False
        now = time.monotonic()
        if now < self._asked + _SECONDS:
            return False
        self._asked = now
        return self._found() is not None

    def _found(self) -> _Instruments | None:
        if self._instruments is None and (
            _is_set(_TRACE, "get_tracer_provider") or _is_set(_METRICS, "get_meter_provider")
        ):
            self._instruments = _made()
        return self._instruments

    def loaded(self, load: TimedLoad, model: LoadedModel) -> None:
        """The span `aotc.load` with one for each stage, and its duration."""
        attributes = {
            **_of(model),
            "aotc.artifact": model.artifact,
            "aotc.version": model.version,
            "aotc.verdict": model.verdict,
            "aotc.variants": [variant.name for variant in model.variants],
            "aotc.providers": [variant.provider for variant in model.variants],
            "aotc.nodes.misplaced": sum(variant.misplaced for variant in model.variants),
        }
        self._load(load, attributes, _of(model), "")

    def failed(self, load: TimedLoad, code: str, where: str) -> None:
        """The same of a load that failed."""
        self._load(load, {"aotc.where": where}, {"error.type": code}, code)

    def _load(
        self, load: TimedLoad, described: dict[str, Any], counted: dict[str, Any], code: str
    ) -> None:
        made = self._found()
        if made is None:
            return
        from opentelemetry import trace

        attributes = {"aotc.path": load.path, **counted, **described}
        span = made.tracer.start_span("aotc.load", start_time=load.began, attributes=attributes)
        within = trace.set_span_in_context(span)
        for stage in load.stages:
            made.tracer.start_span(
                f"aotc.load.{stage.name}", context=within, start_time=stage.began
            ).end(stage.ended)
        _end(span, load.ended, code)
        made.loads.record(load.seconds, counted)

    def call(self, model: LoadedModel, call: Call) -> None:
        """The span `aotc.run`, its duration, elements and fallbacks."""
        made = self._found()
        if made is None:
            return
        ended = time.time_ns()
        of_variant = {**_of(model), "aotc.variant": call.variant}
        of_route = {**of_variant, "aotc.route": call.route}
        made.tracer.start_span(
            "aotc.run",
            start_time=ended - int(call.seconds * 1e9),
            attributes={
                **of_route,
                "aotc.artifact": model.artifact,
                "aotc.padding.elements": call.added,
                "aotc.fallbacks": call.fallbacks,
            },
        ).end(ended)
        made.calls.record(call.seconds, of_route)
        made.given.add(call.given, of_variant)
        made.added.add(call.added, of_variant)
        for direction, copied in (("to", call.copied_to), ("from", call.copied_from)):
            if copied:
                made.copied.add(copied, {**of_variant, "aotc.direction": direction})
        for reason in call.fallbacks:
            made.fallbacks.add(1, {**of_variant, "aotc.reason": reason})

    def refused(self, model: LoadedModel, code: str, where: str) -> None:
        """A span `aotc.run` that failed, and its count."""
        made = self._found()
        if made is None:
            return
        counted = {**_of(model), "error.type": code}
        span = made.tracer.start_span("aotc.run", attributes={**counted, "aotc.where": where})
        _end(span, time.time_ns(), code)
        made.refusals.add(1, counted)

    def lacked_memory(self, model: LoadedModel, variant: str, code: str) -> None:
        """Its count."""
        made = self._found()
        if made is not None:
            counted = {**_of(model), "aotc.variant": variant, "error.type": code}
            made.memory_failures.add(1, counted)

    def timed_copies(self, model: LoadedModel, variant: str, count: int, seconds: float) -> None:
        """Bytes and seconds of the copies of a call."""
        made = self._found()
        if made is not None:
            of_variant = {**_of(model), "aotc.variant": variant}
            made.timed_bytes.add(count, of_variant)
            made.timed_seconds.add(seconds, of_variant)

    def captured(self, model: LoadedModel, variant: str) -> None:
        """Its count."""
        made = self._found()
        if made is not None:
            made.captures.add(1, {**_of(model), "aotc.variant": variant})


def _is_set(module: str, getter: str) -> bool:
    """Whether a provider is another than those of the API, which do nothing."""
    get = getattr(sys.modules.get(module), getter, None)
    return get is not None and not type(get()).__module__.startswith(module)


def _made() -> _Instruments:
    from opentelemetry import metrics, trace

    meter = metrics.get_meter("aotc", VERSION)
    # Those of the API, which do nothing, take what is told until a provider is set.
    return _Instruments(
        tracer=trace.get_tracer("aotc", VERSION),
        calls=meter.create_histogram(
            "aotc.call.duration",
            "s",
            "Time of calls that answered.",
            explicit_bucket_boundaries_advisory=LATENCY_BUCKETS,
        ),
        refusals=meter.create_counter("aotc.refusals", "{call}", "Calls refused or failed."),
        fallbacks=meter.create_counter(
            "aotc.fallbacks", "{call}", "Calls that did not run as the artifact prefers."
        ),
        given=meter.create_counter("aotc.input.elements", "{element}", "Elements of inputs."),
        added=meter.create_counter("aotc.padding.elements", "{element}", "Elements of padding."),
        captures=meter.create_counter("aotc.captures", "{graph}", "CUDA graphs captured."),
        memory_failures=meter.create_counter(
            "aotc.memory.failures", "{call}", "Calls that failed for want of memory."
        ),
        copied=meter.create_counter(
            "aotc.transfer.bytes", "By", "Inputs and outputs copied to and from the device."
        ),
        timed_bytes=meter.create_counter(
            "aotc.timed_transfer.bytes", "By", "Of these, copies that were timed."
        ),
        timed_seconds=meter.create_counter(
            "aotc.timed_transfer.duration", "s", "Time of the copies that were timed."
        ),
        loads=meter.create_histogram("aotc.load.duration", "s", "Time of loads."),
    )


def _of(model: LoadedModel) -> dict[str, Any]:
    return {"aotc.model": model.name}


def _end(span: Any, ended: int, code: str) -> None:
    if code:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, code))
    span.end(ended)
