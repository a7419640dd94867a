"""The number of threads that ONNX Runtime would choose: the cores that this process may run on.

With its own choice, ONNX Runtime also pins each thread to a core.  A calling thread that wakes up
on a worker's core then waits for it: on two cores a request after a pause took twice as long.
Threads whose number is stated are not pinned (ONNX Runtime's documentation of thread management).
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def usable_cores() -> int | None:
    """The physical cores that this process may run on; None if the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return len(allowed)
    return cores_in(text, allowed)


def cores_in(cpuinfo: str, allowed: set[int]) -> int:
    """The number of cores in the text of /proc/cpuinfo that the processors `allowed` belong to.

    A core is a pair of package and core id.  If the text has no core ids, as on arm64, each
    processor counts as one.
    """
    cores: set[tuple[str, str]] = set()
    for block in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        number = fields.get("processor", "")
        if number.isdigit() and int(number) in allowed and "core id" in fields:
            cores.add((fields.get("physical id", ""), fields["core id"]))
    return len(cores) or len(allowed)
