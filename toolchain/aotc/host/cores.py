"""Cores that this process may run on: as many threads as ONNX Runtime would take by itself.

Left to itself ONNX Runtime also ties each of its threads to one core.  A calling thread that wakes
up on the core of a worker then waits for it: on two cores a request after a pause took twice as
long.  A stated number of threads is not tied (ONNX Runtime's documentation of thread management).
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def usable_cores() -> int | None:
    """Physical cores among the processors of this process; None where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return len(allowed)
    return cores_in(text, allowed)


def cores_in(cpuinfo: str, allowed: set[int]) -> int:
    """Different pairs of package and core in the text of /proc/cpuinfo, of `allowed` processors.

    Where it names no cores, as on arm64, each processor is one.
    """
    cores: set[tuple[str, str]] = set()
    for block in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        number = fields.get("processor", "")
        if number.isdigit() and int(number) in allowed and "core id" in fields:
            cores.add((fields.get("physical id", ""), fields["core id"]))
    return len(cores) or len(allowed)
