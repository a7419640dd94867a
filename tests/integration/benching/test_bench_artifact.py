"""Measurements of a real artifact: their shape, their trace, and what they are compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from made_models import linear
from trace_format import read_trace
from workbench import Workbench

import aotc
from aotc.base.errors import AotcError
from aotc.spec.bench_reports import BenchReport
from aotc.spec.codec import decode, encode
from aotc.spec.json import canonical_json
from aotc.tools.bench_comparison import read_history


@pytest.fixture
def loading(digits: BuiltArtifact, tmp_path: Path) -> dict[str, Any]:
    return {"key": digits.public_key, "store": tmp_path / "store", "variant": "portable"}


def measure(
    digits: BuiltArtifact, loading: dict[str, Any], runs: int = 40, **options: Any
) -> BenchReport:
    return aotc.bench(digits.path, runs=runs, warm_up=1, **loading, **options)


def test_all_sides_run_in_turn(digits: BuiltArtifact, loading: dict[str, Any]) -> None:
    report = measure(digits, loading, against=digits.source, baseline=digits.path, allow=1.05)
    assert [timing.name for timing in report.timings] == ["artifact", "model", "baseline"]
    assert len(report.order) == 30
    assert all(sorted(sides) == ["artifact", "baseline", "model"] for sides in report.order)
    for timing in report.timings:
        assert timing.samples == report.runs == 40
        assert timing.lower_seconds <= timing.median_seconds <= timing.upper_seconds
        assert list(timing.latency_seconds) == ["p50", "p90"]
        assert timing.latency_seconds["p50"] == timing.median_seconds
        assert timing.samples_needed == {"p99": 299}
        assert timing.mean_seconds is not None
        assert timing.calls_per_second is not None
        # One after the other: no more than the time of the calls allows.
        assert timing.calls_per_second <= 1 / timing.mean_seconds * 1.0001
    found = report.comparison
    assert found is not None
    assert (found.kind, found.rounds, found.measurements) == ("artifact", 30, 1)
    assert found.artifact_id == report.load.artifact_id
    assert 0 < found.lower <= found.ratio <= found.upper
    medians = {timing.name: timing.median_seconds for timing in report.timings}
    assert found.ratio == pytest.approx(medians["artifact"] / medians["baseline"])


def test_the_report_is_read_back_as_it_was(digits: BuiltArtifact, loading: dict[str, Any]) -> None:
    report = measure(digits, loading, nodes=True, baseline=digits.path)
    text = json.dumps(encode(report, full=True), allow_nan=False)
    assert decode(BenchReport, json.loads(text)) == report
    assert canonical_json(encode(report))


def test_a_trace_has_loads_calls_by_stream_and_nodes(
    digits: BuiltArtifact, loading: dict[str, Any], tmp_path: Path
) -> None:
    path, texts = tmp_path / "trace.json", list[str]()
    for trace in (path, texts.append):
        report = measure(digits, loading, against=digits.source, trace=trace, streams=2)
    assert json.loads(*texts)["traceEvents"]
    events, threads = read_trace(path)
    assert sorted(threads.values()) == [
        "artifact, stream 1", "artifact, stream 2", "load and warm-up", "model, stream 1",
        "model, stream 2", "runs",
    ]  # fmt: skip
    names = {event["name"] for event in events if threads[1, 0] == "load and warm-up"}
    assert {"artifact: load", "artifact: warm-up", "artifact: first run", "model: load"} <= names
    calls = [event for event in events if event["name"] == "run artifact"]
    assert len(calls) == report.runs == 40
    assert {threads[1, event["tid"]] for event in calls} <= {
        "artifact, stream 1", "artifact, stream 2"
    }  # fmt: skip
    found = report.nodes
    assert found is not None
    profiled = [event for event in events if event["pid"] == 2 and event["cat"] != "run"]
    assert {event["name"] for event in profiled} == {node.name for node in found.nodes}
    assert {event["args"]["provider"] for event in profiled} == {
        provider.provider for provider in found.providers
    }
    runs = [event for event in events if event["pid"] == 2 and event["cat"] == "run"]
    assert len(runs) == found.profiled_runs
    # Nothing else was going on while the nodes were profiled.
    assert min(run["ts"] for run in runs) >= max(call["ts"] + call["dur"] for call in calls)


def test_a_history_is_the_baseline_of_the_next_measurement(
    digits: BuiltArtifact, loading: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    for _ in range(2):
        measure(digits, loading, history=path)
    report = measure(digits, loading, history=path, baseline=path, allow=1000)
    found = report.comparison
    assert found is not None
    assert (found.kind, found.measurements, found.verdict) == ("history", 2, "within")
    lines = list(read_history(path))
    assert len(lines) == 3
    assert found.measured_at == lines[1].measured_at
    assert {line.artifact_id for line in lines} == {report.load.artifact_id}
    assert all(line.runs == len(line.samples) == 40 for line in lines)
    assert all(list(line.samples) == sorted(line.samples) for line in lines)


def test_slower_than_a_history_says_so(
    digits: BuiltArtifact, loading: dict[str, Any], tmp_path: Path
) -> None:
    """The rule, on a real measurement: nothing is a thousandth of a real latency."""
    path = tmp_path / "history.jsonl"
    measure(digits, loading, history=path)
    found = measure(digits, loading, baseline=path, allow=0.001).comparison
    assert found is not None
    assert (found.verdict, found.code) == ("slower", "AOTC-I067")
    assert found.reason == "the whole interval is above 0.001"


def test_a_baseline_of_another_model_is_refused(bench: Workbench) -> None:
    ours, other = (
        bench.build(linear(features=count), f"linear{count}", dims={"batch": 2}) for count in (4, 8)
    )
    store = bench.folder / "store"
    with pytest.raises(AotcError) as caught:
        aotc.bench(ours.path, runs=1, baseline=other.path, key=bench.public, store=store)
    error = caught.value
    assert (error.code, error.where) == ("AOTC-I065", str(other.path))
    assert error.expected == f"model {ours.manifest.source.sha256}"
    assert error.found == f"model {other.manifest.source.sha256}"


def test_a_baseline_that_is_no_history_is_refused_before_anything_is_loaded(
    digits: BuiltArtifact, loading: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"schema": "aotc.bench-history/1", "time"')
    steps: list[str] = []
    with pytest.raises(AotcError) as caught:
        measure(digits, loading, baseline=path, allow=1.05, progress=steps.append)
    assert (caught.value.code, steps) == ("AOTC-I063", [])


def test_streams_count_all_calls_together(digits: BuiltArtifact, loading: dict[str, Any]) -> None:
    report = measure(digits, loading, runs=80, streams=4)
    (timing,) = report.timings
    assert (report.streams, timing.samples) == (4, 80)
    assert timing.mean_seconds is not None
    assert timing.calls_per_second is not None
    assert timing.calls_per_second <= 4 / timing.mean_seconds * 1.0001
