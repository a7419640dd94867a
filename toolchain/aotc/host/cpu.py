"""The processor of this machine: its cores, what tells its arithmetic apart, and free memory."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

# Fields of /proc/cpuinfo that tell one processor's arithmetic from another's: first those of
# x86-64, then those of arm64.
_FIELDS: Final = frozenset(
    {
        *("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
        "Features",
    }
)

_CGROUPS: Final = Path("/sys/fs/cgroup")


@cache
def usable_cores() -> int | None:
    """The physical cores that this process may run on; None if the system does not say.

    ONNX Runtime would choose as many threads, but also pin each to a core.  A calling thread that
    wakes up on a worker's core then waits for it: on two cores a request after a pause took twice
    as long.  Threads whose number is stated are not pinned (its page on thread management).
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    return cores_in(system_text(Path("/proc/cpuinfo")), os.sched_getaffinity(0))


def usable_processors() -> tuple[int, ...]:
    """The processors that this process may run on, rising."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


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


def processor_identity() -> tuple[str, ...]:
    """The kinds of processors of this machine, one text each; none where the system is silent."""
    return identity_in(system_text(Path("/proc/cpuinfo")))


def identity_in(cpuinfo: str) -> tuple[str, ...]:
    """The kinds of processors in the text of /proc/cpuinfo, sorted."""
    kinds = set()
    for block in cpuinfo.split("\n\n"):
        lines = (line.partition(":") for line in block.splitlines())
        kept = sorted(
            f"{name.strip()}: {value.strip()}"
            for name, _, value in lines
            if name.strip() in _FIELDS
        )
        if kept:
            kinds.add("\n".join(kept))
    return tuple(sorted(kinds))


def available_bytes(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int:
    """The least that the machine and each control group of this process leave; 0 if unknown.

    `MemAvailable` of /proc/meminfo; of version 2 of the groups, the limit less what is used, where
    files that were read count as free (Linux documentation: proc(5), control group v2).
    """
    machine = re.search(r"^MemAvailable:\s+(\d+) kB", system_text(proc / "meminfo"), re.MULTILINE)
    if machine is None:
        return 0
    least = int(machine[1]) * 1024
    own = re.search(r"^0::/(.*)$", system_text(proc / "self" / "cgroup"), re.MULTILINE)
    place = cgroups / own[1] if own is not None else cgroups
    for group in (place, *place.parents):
        if not group.is_relative_to(cgroups):
            break
        limit, used = (system_text(group / f"memory.{name}").strip() for name in ("max", "current"))
        if limit.isdigit() and used.isdigit():
            files = re.search(
                r"^inactive_file (\d+)$", system_text(group / "memory.stat"), re.MULTILINE
            )
            least = min(least, int(limit) - int(used) + (int(files[1]) if files else 0))
    return max(0, least)


def system_text(path: Path) -> str:
    """The text of a file such as /proc/cpuinfo; "" if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
