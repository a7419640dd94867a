"""Runs programs with a folder as the lower layer of an overlay, as a container has its image.

`run_on_overlay(work, lower, program)` runs a Python program in its own mount namespace; its first
argument is a folder whose files are all in a read-only layer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = """
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/merged" || exit 77
shift 2
exec "$@"
"""
NO_OVERLAY = 77


def run_on_overlay(work: Path, lower: Path, program: str, *words: str) -> str:
    """What the program prints; skips if this machine cannot mount an overlay."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to mount an overlay")
    for name in ("upper", "work", "merged"):
        (work / name).mkdir(parents=True, exist_ok=True)
    mounting = ["unshare", "--mount", "sh", "-c", SETUP, "sh", str(lower), str(work)]
    done = subprocess.run(
        [*mounting, sys.executable, "-c", program, str(work / "merged"), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    if done.returncode == NO_OVERLAY or "unshare" in done.stderr:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout
