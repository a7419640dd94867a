"""The benchmark programs run on small models; their measurements are not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
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
    "blame",
    "auto_half",
    "calls",
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
