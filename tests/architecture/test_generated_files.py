"""The page of codes is as the catalogue is now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_codes_is_current() -> None:
    result = subprocess.run(
        [sys.executable, "ci/generate_docs.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, ""), f"run make docs: {result.stderr}"
