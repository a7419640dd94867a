"""The benchmark programs run on small models; their measurements are not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from made_models import linear, save
from repository import ROOT

NEEDS_OPENVINO = (
    pytest.mark.openvino,
    pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed"),
)
PLAIN = (
    "memory",
    "verify",
    "build",
    "load",
    "first_answer",
    "packed_load",
    "system_store",
    "latency",
    "variants",
    "plans",
    "int8_latency",
    "digits_int8",
    "trained",
    "blame",
    "auto_half",
    "int4_decoder",
    "calls",
    "bound_calls",
    "listeners",
    "startup",
)
WITH_OPENVINO = ("openvino_latency", "openvino_load", "openvino_lengths", "cached_build", "tuned")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *PLAIN,
        "partitioning",
        *(pytest.param(name, marks=NEEDS_OPENVINO) for name in WITH_OPENVINO),
    ],
)
def test_a_benchmark_runs(name: str) -> None:
    results = ROOT / "build" / "bench-smoke" / "results" / f"{name}.json"
    results.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", name], cwd=ROOT, check=True, timeout=600
    )
    document = json.loads(results.read_bytes())
    assert document["rows"]
    assert all(samples and min(samples) >= 0 for samples in document["samples"].values())


def test_an_unknown_benchmark_is_named() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "no benchmark is named 'speed'; there are: memory, verify, build" in result.stderr


@pytest.mark.slow
def test_a_small_network_is_lowered_by_both_sides(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.precision.quantizers", "mlp", "--quick"]
    result = subprocess.run(
        [*command, "--forms", "keep", "dynamic", "--graphs", "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # Whether a limit was kept to hangs on the machine.
    assert result.returncode in (0, 1), result.stderr
    assert "dynamic, its graph / their dynamic ≤ 1.1: " in result.stdout
    # Which of their settings is the quickest hangs on it too.
    assert "their static: " in result.stdout
    found = json.loads((tmp_path / "mlp.json").read_bytes())
    assert found["errors"]["dynamic"] < 0.1
    assert not any(found["failed"].values())


def test_the_judge_is_measured_on_a_small_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.judge", "--networks", "regression"]
    result = subprocess.run(
        [*command, "--seeds", "0..1", "--jobs", "1", "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # 1: the judge missed a fault, or refused too many.
    assert result.returncode in (0, 1), result.stderr
    rows = {
        tuple(cell.strip() for cell in line.strip("|").split("|")[:4])
        for line in result.stdout.splitlines()
        if line.startswith("| regression |")
    }
    assert {row[1] for row in rows} == {"float32", "float16", "bfloat16", "int8", "int4"}
    assert {row[2] for row in rows if row[1] == "float16"} == {"20"}


def test_an_unknown_network_is_named() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.judge", "--networks", "lenet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "no network is named 'lenet'; there are: detector_joined" in result.stderr


@pytest.mark.slow
def test_ranges_are_measured_before_and_now(tmp_path: Path) -> None:
    save(linear(), tmp_path / "linear.onnx")
    calls = [{"batch": 1}, {"batch": 3}, {"batch": 10**6}, {"batch": 1, "features": 3}]
    calls = [{"features": 16, **call} for call in calls]
    inputs = {"x": {"shape": ["batch", "features"]}}
    (tmp_path / "linear.json").write_text(json.dumps({"inputs": inputs, "calls": calls}))
    kept = tmp_path / "kept.json"
    command = [sys.executable, "-m", "benchmarks.ranges", str(tmp_path), "--json", str(kept)]
    result = subprocess.run(
        [*command, "--against", str(ROOT)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # 1: an analysis took too long.
    assert result.returncode in (0, 1), result.stderr
    before, now = json.loads(kept.read_bytes())
    assert (before["side"], now["side"]) == ("before", "now")
    assert before["ranges"] == now["ranges"]
    assert now["ranges"][0]["batch"]["max"] >= 8
    assert now["run"] > 0
    # The third is outside of the range, and the last one no call that the model takes.
    asked = [[True, True, True], [True, True, True], [True, True, False], [False, False, False]]
    assert before["calls"] == now["calls"] == asked
    rows = [line for line in result.stdout.splitlines() if line.startswith("| linear |")]
    assert [row.split("|")[-4:-1] for row in rows] == [[" 3 of 4 ", " 3 ", " 2 "]] * 2


def test_a_model_without_a_file_is_named(tmp_path: Path) -> None:
    save(linear(), tmp_path / "linear.onnx")
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.ranges", str(tmp_path), "--names", "lenet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "no model is named 'lenet'; there are: linear" in result.stderr
