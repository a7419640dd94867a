"""The tests of the GPU, where there is none: skipped, but failed where there must be one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotc.host.probe import probe

ROOT = Path(__file__).parents[2]
SHARES = 3
pytestmark = pytest.mark.skipif(bool(probe(gpus=True).gpus), reason="this machine has a GPU")


def ends(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/gpu/test_device.py", "-q"]
    kept = {name: value for name, value in os.environ.items() if name != "AOTC_GPU_REQUIRED"}
    return subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_gpu_they_are_skipped_unless_it_is_required() -> None:
    assert ends().returncode == 0
    required = ends(AOTC_GPU_REQUIRED="1")
    assert required.returncode == 1
    assert "no NVIDIA GPU is found" in required.stdout


def test_the_script_requires_it() -> None:
    assert "export AOTC_GPU_REQUIRED=1" in (ROOT / "ci" / "gpu.sh").read_text()


def collected(*words: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/gpu", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_each_test_is_in_one_share() -> None:
    whole = collected()
    shares = [collected("--share", f"{number}/{SHARES}") for number in range(1, SHARES + 1)]
    shares.append(collected("--share", "alone"))
    assert len(whole) > 100
    assert sum(map(len, shares)) == len(whole) and set().union(*shares) == whole
    assert all(shares)
    # What one artifact serves is built once.
    bound = [share for share in shares if any("test_bound_on_gpu" in name for name in share)]
    assert len(bound) == 1


def test_results_of_parts_are_merged(tmp_path: Path) -> None:
    case = '<testcase classname="c" name="{}" time="{}">{}</testcase>'
    for folder, found in {
        "a": [case.format("one", 1.5, ""), case.format("two", 9.0, '<skipped message="m"/>')],
        "b": [case.format("three", 2.0, "")],
    }.items():
        (tmp_path / folder).mkdir()
        text = f"<testsuites><testsuite>{''.join(found)}</testsuite></testsuites>"
        (tmp_path / folder / "gpu-tests.xml").write_text(text)

    def merged() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "ci/gpu_results.py", str(tmp_path / "a"), str(tmp_path / "b")]
        command += ["-o", str(tmp_path / "merged.xml")]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    done = merged()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 passed, 1 skipped; 12 s of tests")
    assert (tmp_path / "merged.xml").read_text().count("<testcase ") == 3
    failing = tmp_path / "b" / "gpu-tests-2-2.xml"
    bad = case.format("four", 3.0, '<failure message="m"/>')
    failing.write_text(f"<testsuites><testsuite>{bad}</testsuite></testsuites>")
    done = merged()
    assert done.returncode == 1
    assert "FAILED c four" in done.stdout
