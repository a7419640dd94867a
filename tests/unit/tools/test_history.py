"""The history: lines of many processes, lines that were cut off, and what may be compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal
from repository import TOOLCHAIN

from aotc.base.records import replace
from aotc.spec.bench_reports import HistoryLine, Machine
from aotc.spec.codec import encode
from aotc.tools.bench_comparison import (
    Conditions,
    append_line,
    baseline_lines,
    read_history,
    require_appendable,
)

MACHINE = Machine(cpu="Example 9000", architecture="x86_64", isa=("avx2",), cores=2, processors=4)
LINE = HistoryLine(
    measured_at="2026-01-31T12:00:00Z",
    machine=MACHINE,
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
    runs=5,
    samples=(0.001, 0.002, 0.003),
)
WANTED = Conditions(
    machine=MACHINE,
    model_sha256="cd" * 32,
    variant="native",
    sizes={"batch": 1},
    threads=None,
    streams=1,
)
# The artifact that is measured; no line is of it unless a test says so.
OWN = "ef" * 32

# Appends a line often, as long as another process may do the same.
WRITER = """
import sys
from pathlib import Path
from aotc.tools.bench_comparison import append_line, read_history
from aotc.base.records import replace
path = Path(sys.argv[1])
line = next(read_history(path.with_name("one.jsonl")))
for number in range(int(sys.argv[3])):
    append_line(path, replace(line, name=f"{sys.argv[2]}-{number}", samples=line.samples * 100))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def test_lines_are_appended_in_order_and_read_as_they_were(path: Path) -> None:
    second = replace(LINE, name="other")
    append_line(path, LINE)
    append_line(path, second)
    assert list(read_history(path)) == [LINE, second]
    assert path.read_bytes().count(b"\n") == 2
    assert path.read_bytes().isascii()


def test_processes_that_append_at_once_tear_no_line(path: Path) -> None:
    append_line(path.with_name("one.jsonl"), LINE)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"writer{number}", "25"],
            env={"PYTHONPATH": str(TOOLCHAIN)},
        )
        for number in range(4)
    ]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    names = [line.name for line in read_history(path)]
    assert sorted(names) == sorted(f"writer{w}-{n}" for w in range(4) for n in range(25))
    for number in range(4):
        own = [name for name in names if name.startswith(f"writer{number}-")]
        assert own == [f"writer{number}-{index}" for index in range(25)]


def test_a_line_that_was_cut_off_spoils_no_later_one(path: Path) -> None:
    append_line(path, LINE)
    path.write_bytes(path.read_bytes()[:-40])
    append_line(path, LINE)
    error = refusal(lambda: list(read_history(path)))
    assert (error.code, error.where) == ("AOTC-I063", f"{path}:1")
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    assert list(read_history(path)) == [LINE]


def test_a_line_cut_off_anywhere_is_refused(path: Path) -> None:
    append_line(path, LINE)
    whole = path.read_bytes()[:-1]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert refusal(lambda: list(read_history(path))).code == "AOTC-I063", length


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "aotc.bench/1"},
        {"samples": []},
        {"samples": [0.0]},
        {"samples": [-1.0]},
        {"samples": ["1"]},
        {"samples": [0.5] * 513},
        {"streams": 0},
        {"machine": None},
        {"artifact_id": "x"},
        {"surprise": 1},
    ],
    ids=json.dumps,
)
def test_what_is_not_a_line_is_refused(change: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps({**encode(LINE, full=True), **change}) + "\n")
    assert refusal(lambda: list(read_history(path))).code == "AOTC-I063"


def test_an_empty_file_and_none_at_all_are_refused(path: Path) -> None:
    assert refusal(lambda: list(read_history(path))).code == "AOTC-I001"
    path.write_text("\n\n")
    error = refusal(lambda: list(read_history(path)))
    assert (error.code, error.found) == ("AOTC-I063", "an empty file")


def test_the_last_artifacts_lines_under_these_conditions_are_taken(path: Path) -> None:
    other_model = replace(LINE, model_sha256="ef" * 32)
    elsewhere = replace(LINE, machine=replace(MACHINE, cores=8))
    older = replace(LINE, artifact_id="12" * 32)
    later = replace(LINE, measured_at="2026-02-01T12:00:00Z")
    for line in (older, LINE, other_model, later, elsewhere, replace(LINE, streams=4)):
        append_line(path, line)
    assert baseline_lines(path, WANTED, OWN) == (LINE, later)


def test_of_many_lines_the_last_are_taken(path: Path) -> None:
    for number in range(25):
        append_line(path, replace(LINE, name=f"m{number}"))
    taken = [line.name for line in baseline_lines(path, WANTED, OWN)]
    assert taken == [f"m{number}" for number in range(5, 25)]


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        ({"cores": 8}, "cores 2", "cores 8"),
        ({"cpu": "Other"}, "cpu Example 9000", "cpu Other"),
        ({"governor": "powersave"}, "governor unknown", "governor powersave"),
        ({"isa": ("avx2", "fma")}, "isa avx2", "isa avx2, fma"),
        ({"quota": 1.5}, "quota unknown", "quota 1.5"),
    ],
)
def test_another_machine_is_refused_with_what_differs(
    change: dict[str, Any], expected: str, found: str, path: Path
) -> None:
    append_line(path, replace(LINE, machine=replace(MACHINE, **change)))
    error = refusal(lambda: baseline_lines(path, WANTED, OWN))
    what = f"AOTC-I064 the baseline was measured on another machine [{path}]"
    assert error.line() == f"{what} (expected {expected}; found {found})"


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        ({"sizes": {"batch": 8}}, "sizes batch=1", "sizes batch=8"),
        ({"variant": "portable"}, "variant native", "variant portable"),
        ({"threads": 2}, "threads one for each core", "threads 2"),
        ({"streams": 4}, "streams 1", "streams 4"),
        ({"model_sha256": "ef" * 32}, f"model {'cd' * 32}", f"model {'ef' * 32}"),
    ],
)
def test_another_model_or_measurement_is_refused_with_what_differs(
    change: dict[str, Any], expected: str, found: str, path: Path
) -> None:
    append_line(path, replace(LINE, **change))
    error = refusal(lambda: baseline_lines(path, WANTED, OWN))
    assert (error.code, error.exit_status) == ("AOTC-I065", 3)
    assert (error.expected, error.found) == (expected, found)


def test_the_measured_artifact_is_its_own_baseline_only_where_there_is_no_other(path: Path) -> None:
    own = replace(LINE, artifact_id=OWN)
    append_line(path, own)
    assert baseline_lines(path, WANTED, OWN) == (own,)
    append_line(path, LINE)
    append_line(path, own)
    assert baseline_lines(path, WANTED, OWN) == (LINE,)


def test_what_was_judged_slower_is_no_baseline(path: Path) -> None:
    slower = replace(LINE, artifact_id="12" * 32, verdict="slower")
    append_line(path, slower)
    error = refusal(lambda: baseline_lines(path, WANTED, OWN))
    assert (error.code, error.found) == ("AOTC-I065", "")
    assert "slower" in error.what
    for line in (LINE, slower):
        append_line(path, line)
    assert baseline_lines(path, WANTED, OWN) == (LINE,)
    # Measured again without a baseline, it is accepted.
    accepted = replace(slower, verdict="")
    append_line(path, accepted)
    assert baseline_lines(path, WANTED, OWN) == (accepted,)


def test_another_onnx_runtime_may_be_compared(path: Path) -> None:
    """To move to another one is a reason to measure."""
    line = replace(LINE, onnxruntime="1.30.0")
    append_line(path, line)
    assert baseline_lines(path, WANTED, OWN) == (line,)


def test_what_cannot_hold_lines_is_refused_before(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/null")):
        error = refusal(lambda place=place: require_appendable(place))  # type: ignore[misc]
        assert (error.code, error.found) == ("AOTC-I026", "it is not a regular file")
    require_appendable(tmp_path / "new.jsonl")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(lambda: append_line(tmp_path / "no" / "h.jsonl", LINE)).code == "AOTC-I026"
