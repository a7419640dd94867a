"""Wheels that tests fetch with pip, and skip where it reaches no index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def fetch_wheels(folder: Path, what: str, *words: str) -> None:
    """Fetch what `words` tell pip into `folder`; without an index, skip: `what` is missing."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--retries", "1", "--only-binary", ":all:", "--dest", str(folder), *words),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        pytest.skip(f"pip reaches no index with {what}: {lines[-1:]}")
