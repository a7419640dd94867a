"""Locks held by other processes, for tests of waiting for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDER = Path(__file__).with_name("lock_holder.py")


@contextmanager
def held_by_another(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lock of a file or folder meanwhile."""
    with subprocess.Popen(
        [sys.executable, str(_HOLDER), str(path), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.stdin.close()


def named(process: subprocess.Popen[str]) -> str:
    """How a refusal names a process."""
    name = Path(f"/proc/{process.pid}/comm").read_text().strip()
    return f"process {process.pid} ({name})"
