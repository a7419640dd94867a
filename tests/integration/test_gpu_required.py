"""The tests of the GPU, where there is none: skipped, but failed where there must be one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotc.host.probe import probe

ROOT = Path(__file__).parents[2]
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
