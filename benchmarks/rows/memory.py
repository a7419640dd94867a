"""Peak memory of building and of verifying a large model, over all processes.

The proportional set size divides a page among the processes that share it.  Measured is the sum of
`Pss` in /proc/PID/smaps_rollup over the process tree (Linux, Documentation/filesystems/proc.rst).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fresh import AOTC, fresh_command
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

INTERVAL_SECONDS = 0.025
BUILD_LIMIT = 2.2
VERIFY_LIMIT = 150e6


def run(workshop: Workshop) -> Result:
    """Build, then verify the result."""
    model = workshop.model("dense")
    size = sum(path.stat().st_size for path in model.path.parent.iterdir())
    output = workshop.artifact_path("dense", "edge")
    if output.exists():
        shutil.rmtree(output)
    workshop.progress(f"build {model.title}")
    building = peak(fresh_command("workshop:build", workshop.build_request("dense", "edge")))
    workshop.progress(f"verify {model.title}")
    verifying = peak([str(AOTC), "verify", str(output), "--key", str(workshop.key()[1])])
    rows = (
        Row(
            what=f"{model.title}: peak of a build to the model's size",
            asked=f"< {BUILD_LIMIT:g}",
            measured=f"{max(building) / size:.3f} ({max(building) / 1e9:.2f} GB"
            f" to {size / 1e9:.2f} GB)",
            held=max(building) < BUILD_LIMIT * size,
        ),
        Row(
            what=f"{model.title}: peak of a verification",
            asked=f"< {VERIFY_LIMIT / 1e6:.0f} MB",
            measured=f"{max(verifying) / 1e6:.0f} MB",
            held=max(verifying) < VERIFY_LIMIT,
        ),
    )
    return Result(rows=rows, samples={"build": building, "verify": verifying})


def peak(command: list[str]) -> list[float]:
    """The running maximum of the tree's proportional set size in bytes, each time it rose.

    Raises `CalledProcessError` if the command fails.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    rises = [0.0]
    while process.poll() is None:
        now = float(sum(proportional_bytes(pid) for pid in tree(process.pid)))
        if now > rises[-1]:
            rises.append(now)
        time.sleep(INTERVAL_SECONDS)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return rises


def tree(root: int) -> Iterator[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # It ended meanwhile.
            # The name, in parentheses, may contain spaces; the parent is the second field after it.
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def proportional_bytes(pid: int) -> int:
    """The proportional set size of one process; 0 if it has ended."""
    try:
        text = Path("/proc", str(pid), "smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
