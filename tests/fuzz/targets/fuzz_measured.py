"""Histories of measurements, and traces and profiles of sessions."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz_target import Target

from aotc.base.errors import AotcError
from aotc.session.node_times import faster_half, profiled_runs, read_events
from aotc.spec.bench_reports import HistoryLine, Machine
from aotc.spec.codec import encode
from aotc.tools.bench_comparison import (
    Conditions,
    append_line,
    baseline_lines,
    judge,
    read_history,
    unpaired_interval,
)

_FOLDER = tempfile.TemporaryDirectory(prefix="aotc-fuzz-")
atexit.register(_FOLDER.cleanup)
FILE, AGAIN = (Path(_FOLDER.name) / name for name in ("measured.jsonl", "again.jsonl"))
LINE = HistoryLine(
    measured_at="2026-01-31T12:00:00Z",
    machine=Machine(cpu="Example", architecture="x86_64", cores=2),
    onnxruntime="1.31.1",
    name="digits",
    artifact_id="ab" * 32,
    model_sha256="cd" * 32,
    variant="native",
    sizes={"batch": 1},
    load_seconds=0.001,
    mean_seconds=0.002,
    latency_seconds={"p50": 0.002},
    calls_per_second=500.0,
    runs=3,
    samples=(0.001, 0.002, 0.003),
)
WANTED = Conditions(
    machine=LINE.machine,
    model_sha256=LINE.model_sha256,
    variant=LINE.variant,
    sizes=LINE.sizes,
    threads=None,
    streams=1,
)
TRACE = (
    b'[{"cat":"Session","ph":"X","name":"model_run","ts":0,"dur":9,"tid":1,"args":{}},'
    b'{"cat":"Node","ph":"X","name":"a_kernel_time","ts":1,"dur":3,"tid":1,'
    b'"args":{"op_name":"If","provider":"CPUExecutionProvider"}},'
    b'{"cat":"Node","ph":"X","name":"b_kernel_time","ts":2,"dur":1,"tid":1,"args":{}}]'
)
WORDS = frozenset({"samples", "machine", "model_run", "_kernel_time", "Node", "Session", "ph", "X"})


def check(data: bytes) -> bool:
    """A history is written and read back unchanged, and gives a verdict; nodes fit their run."""
    FILE.write_bytes(data)
    return any([_is_history(), _is_trace()])


def _is_history() -> bool:
    try:
        lines = list(read_history(FILE))
    except AotcError as error:
        assert error.code == "AOTC-I063"
        return False
    AGAIN.unlink(missing_ok=True)
    for line in lines:
        append_line(AGAIN, line)
    assert list(read_history(AGAIN)) == lines
    try:
        alike = baseline_lines(FILE, WANTED, LINE.artifact_id)
    except AotcError as error:
        assert error.code in ("AOTC-I064", "AOTC-I065")
        return True
    found = unpaired_interval([[0.002]] * 10, [line.samples for line in alike[-2:]])
    assert 0 < found.lower <= found.upper
    assert judge(found, 1.05)[1]
    return True


def _is_trace() -> bool:
    try:
        events = read_events(FILE)
        runs = profiled_runs(events, FILE)
    except AotcError as error:
        assert error.code == "AOTC-I066"
        return False
    assert 1 <= len(faster_half(runs)) <= len(runs)
    assert all(0 <= node.own <= node.duration for run in runs for node in run.nodes)
    return True


def seeds() -> Iterator[bytes]:
    """A history, one of elsewhere, a profile, and a trace around the same events."""
    line = encode(LINE, full=True)
    yield json.dumps(line).encode() + b"\n"
    yield json.dumps({**line, "streams": 4}).encode() + b"\n{"
    yield json.dumps({**line, "machine": {"cpu": "", "architecture": "aarch64"}}).encode()
    yield TRACE
    yield b'{"traceEvents": ' + TRACE + b"}"
    yield TRACE[:-20]


TARGET = Target("measured", check, seeds, WORDS, 4096)
