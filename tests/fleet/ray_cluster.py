"""A cluster of Ray: a head without cores, and nodes as processes, each as a machine of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

_JOBS = Path(__file__).parent
_TOOLCHAIN = _JOBS.parents[1] / "toolchain"


class Cluster:
    """A head, and nodes by name."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.folder = folder
        self.address = f"127.0.0.1:{port}"
        self.environment = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            # So that the head misses a node soon.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
        }
        self._started: dict[str, tuple[Any, ...]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("head", ["--head", f"--port={port}", "--include-dashboard=false"], 0, {}, ())
        self.wait_for("head")

    def add(
        self,
        name: str,
        options: Sequence[str] = (),
        *,
        cpus: int = 2,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """Start a node; it has a cache and a folder for temporary files of its own."""
        words = [f"--address={self.address}", f"--node-name={name}", *options]
        self._start(name, words, cpus, environment or {}, prefix)

    def _start(
        self,
        name: str,
        options: Sequence[str],
        cpus: int,
        environment: Mapping[str, str],
        prefix: Sequence[str],
    ) -> None:
        self._started[name] = (name, options, cpus, environment, prefix)
        temporary = self.folder / name
        temporary.mkdir()
        own = {
            # Ray's own files are below the head's.
            "TMPDIR": str(self.folder if name == "head" else temporary),
            "AOTC_CACHE": str(self.folder / f"{name}-cache"),
            "PYTHONPATH": f"{_TOOLCHAIN}{os.pathsep}{_JOBS}",
        }
        words = [
            *prefix,
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            # Any ports: the usual range may hold the head's.
            *("--min-worker-port=0", "--max-worker-port=0"),
            *(f"--num-cpus={cpus}", f"--object-store-memory={80 << 20}", *options),
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                words,
                env={**self.environment, **own, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End a node with all its processes at once, as a machine that loses its power."""
        process = self._processes.pop(name)
        for number in [process.pid, *_children(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """End all nodes."""
        for name in list(self._processes)[::-1]:
            self.kill(name)

    def wait_for(self, *names: str) -> None:
        """Wait until these nodes are up."""
        failed: set[str] = set()
        for name in names:
            log = self.folder / f"{name}.log"
            while "Ray runtime started" not in log.read_text():
                if self._processes[name].poll() is not None:
                    # Ray gives it half a minute, which a busy machine may take.
                    if name in failed or name == "head":
                        pytest.fail(log.read_text())
                    failed.add(name)
                    shutil.rmtree(self.folder / name)
                    self._start(*self._started[name])
                time.sleep(0.1)


def _children(parent: int) -> list[int]:
    """The processes that a process started, and theirs."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = place.read_text()
            parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(
                int(place.parent.name)
            )
    found, left = [], [parent]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found
