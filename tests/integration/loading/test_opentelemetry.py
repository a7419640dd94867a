"""Spans and measurements, as OpenTelemetry's SDK and a receiver of its protocol get them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from built_artifact import BuiltArtifact

pytest.importorskip("opentelemetry.sdk")

SECONDS = 120
STAGES = ("verify", "choose", "import", "session", "placement", "warm-up")

# Calls of an application; what it sets up stands before, and what it shows behind.
CALLS = """
import sys
import numpy as np
import aotc
from opentelemetry import trace
artifact, key, *words = sys.argv[1:]
try:
    aotc.load(artifact + "/nowhere", key=key)
except aotc.AotcError as error:
    assert error.code == "AOTC-I001"
with trace.get_tracer("application").start_as_current_span("request"):
    model = aotc.load(artifact, key=key, name="ranker")
    for batch in (1, 2, 3):
        model.run({"image": np.zeros((batch, 1, 8, 8), np.float32)})
    try:
        model.run({"image": np.zeros((1, 1, 8, 8))})
    except aotc.AotcError as error:
        assert error.code == "AOTC-R002"
model.close()
"""

IN_MEMORY = """
import json
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
"""
SET = """
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))
"""
MEMORY = """
of_calls = spans.get_finished_spans()
name = model.variant.name
model.telemetry.call(0.001, variant=name, cause="padded", copied=(100, 20))
model.telemetry.time_copies(name, 120, 0.25)
model.telemetry.lack_memory("AOTC-R057", name)
"""
SHOW = """
print(json.dumps({
    "spans": [json.loads(span.to_json()) for span in of_calls],
    "metrics": json.loads(reader.get_metrics_data().to_json()),
}))
"""

EXPORTED = """
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
trace.set_tracer_provider(provider)
metrics.set_meter_provider(meters)
"""
FLUSH = """
provider.shutdown()
meters.shutdown()
"""


def run(digits: BuiltArtifact, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(digits.path), str(digits.public_key)],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def in_memory(digits: BuiltArtifact) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(digits, IN_MEMORY + SET + CALLS + MEMORY + SHOW))
    return found


def points(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The points of each measurement."""
    (resource,) = found["metrics"]["resource_metrics"]
    (scope,) = resource["scope_metrics"]
    assert scope["scope"]["name"] == "aotc"
    return {each["name"]: each["data"]["data_points"] for each in scope["metrics"]}


def test_a_load_is_a_span_with_its_stages(digits: BuiltArtifact, in_memory: dict[str, Any]) -> None:
    by_name = {span["name"]: span for span in in_memory["spans"]}
    failed, load = (span for span in in_memory["spans"] if span["name"] == "aotc.load")
    request = by_name["request"]
    assert load["parent_id"] == request["context"]["span_id"]
    stages = [by_name[f"aotc.load.{name}"] for name in STAGES]
    for stage in stages:
        assert stage["parent_id"] == load["context"]["span_id"]
        assert load["start_time"] <= stage["start_time"] <= stage["end_time"]
    attributes = load["attributes"]
    assert (attributes["aotc.model"], attributes["aotc.verdict"]) == ("ranker", "optimal")
    assert attributes["aotc.providers"] == ["CPUExecutionProvider"]
    assert attributes["aotc.path"] == str(digits.path)
    assert len(attributes["aotc.artifact"]) == 64
    assert failed["status"] == {"status_code": "ERROR", "description": "AOTC-I001"}
    assert failed["attributes"]["error.type"] == "AOTC-I001"
    assert failed["parent_id"] is None


def test_a_call_is_a_span_in_that_of_its_request(in_memory: dict[str, Any]) -> None:
    (request,) = (span for span in in_memory["spans"] if span["name"] == "request")
    *answered, refused = (span for span in in_memory["spans"] if span["name"] == "aotc.run")
    assert len(answered) == 3
    for call in (*answered, refused):
        assert call["parent_id"] == request["context"]["span_id"]
    for call in answered:
        attributes = dict(call["attributes"])
        assert len(attributes.pop("aotc.artifact")) == 64
        assert attributes.pop("aotc.variant") in ("portable", "native")
        assert attributes == {
            "aotc.model": "ranker",
            "aotc.route": "exact",
            "aotc.padding.elements": 0,
            "aotc.fallbacks": [],
        }
        assert request["start_time"] <= call["start_time"] <= call["end_time"]
    assert refused["status"] == {"status_code": "ERROR", "description": "AOTC-R002"}
    assert refused["attributes"] == {
        "aotc.model": "ranker",
        "error.type": "AOTC-R002",
        "aotc.where": "input image",
    }


def test_calls_and_loads_are_measured(in_memory: dict[str, Any]) -> None:
    found = points(in_memory)
    duration, _ = found["aotc.call.duration"]
    call = next(each for each in in_memory["spans"] if each["name"] == "aotc.run")
    assert duration["count"] == 3
    assert duration["attributes"] == {
        name: call["attributes"][name] for name in ("aotc.model", "aotc.variant", "aotc.route")
    }
    assert duration["explicit_bounds"][0] == 0.0001
    (failures,) = found["aotc.memory.failures"]
    assert failures["attributes"] == {
        "aotc.model": "ranker",
        "aotc.variant": call["attributes"]["aotc.variant"],
        "error.type": "AOTC-R057",
    }
    copied = {
        point["attributes"]["aotc.direction"]: point["value"]
        for point in found["aotc.transfer.bytes"]
    }
    assert copied == {"to": 100, "from": 20}
    assert [point["value"] for point in found["aotc.timed_transfer.bytes"]] == [120]
    assert [point["value"] for point in found["aotc.timed_transfer.duration"]] == [0.25]
    (refusals,) = found["aotc.refusals"]
    assert refusals["value"] == 1
    assert refusals["attributes"] == {"aotc.model": "ranker", "error.type": "AOTC-R002"}
    assert [point["value"] for point in found["aotc.input.elements"]] == [6 * 64]
    assert [point["value"] for point in found["aotc.padding.elements"]] == [0]
    assert [point["count"] for point in found["aotc.load.duration"]] == [1, 1]


LATER = """
model = aotc.load(artifact, key=key)
call = {"image": np.zeros((1, 1, 8, 8), np.float32)}
model.run(call)
trace.set_tracer_provider(provider)
import time
deadline = time.monotonic() + 60
while not spans.get_finished_spans() and time.monotonic() < deadline:
    model.run(call)
assert {span.name for span in spans.get_finished_spans()} == {"aotc.run"}
"""


def test_a_provider_that_is_set_later_is_told(digits: BuiltArtifact) -> None:
    run(digits, IN_MEMORY + CALLS + LATER)


@pytest.fixture
def receiver() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """An endpoint of OTLP over HTTP, and the bodies that it was sent, by path."""
    bodies: dict[str, list[bytes]] = {}

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/x-protobuf"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_receiver_of_the_protocol_parses_them(
    digits: BuiltArtifact,
    receiver: tuple[str, dict[str, list[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    messages = "opentelemetry.proto.collector"
    traces = pytest.importorskip(f"{messages}.trace.v1.trace_service_pb2")
    metrics = pytest.importorskip(f"{messages}.metrics.v1.metrics_service_pb2")
    address, bodies = receiver
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    run(digits, EXPORTED + CALLS + FLUSH)
    spans = [
        span
        for body in bodies["/v1/traces"]
        for resource in traces.ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        if scope.scope.name == "aotc"
        for span in scope.spans
    ]
    names = sorted(span.name for span in spans)
    stages = [f"aotc.load.{name}" for name in STAGES]
    # The load that failed did so while it verified.
    loads = ["aotc.load", "aotc.load", "aotc.load.verify", *stages]
    assert names == sorted([*loads, *["aotc.run"] * 4])
    runs = [span for span in spans if span.name == "aotc.run"]
    attributes = {pair.key: pair.value.string_value for pair in runs[0].attributes}
    assert (attributes["aotc.model"], attributes["aotc.route"]) == ("ranker", "exact")
    assert [span.status.message for span in runs] == ["", "", "", "AOTC-R002"]
    counts = {
        metric.name: [point.count for point in metric.histogram.data_points]
        for body in bodies["/v1/metrics"]
        for resource in metrics.ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.endswith(".duration")
    }
    assert counts == {"aotc.call.duration": [3], "aotc.load.duration": [1, 1]}
