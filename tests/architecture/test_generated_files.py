"""Files that are generated from the code are as the code is now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("command", "mend"),
    [
        (["ci/generate_docs.py"], "make docs"),
        (["-m", "aotc.contract.schema"], "make schemas"),
    ],
    ids=["docs", "schemas"],
)
def test_generated_files_are_current(command: list[str], mend: str) -> None:
    result = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, ""), f"run {mend}: {result.stderr}"
