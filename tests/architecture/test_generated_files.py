"""Generated pages are up to date with their sources."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from repository import ROOT


@pytest.mark.parametrize(
    "script",
    ["ci/generate_docs.py", "ci/architecture", "ci/pictures/draw_pictures.py"],
    ids=["the page of codes", "the picture and table of wings", "the pictures"],
)
def test_what_is_generated_is_current(script: str) -> None:
    result = subprocess.run(
        [sys.executable, script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, ""), f"run make docs: {result.stderr}"
