"""How much memory this process may still take, without what the system would have to take back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from aotc.host.system_text import system_text

_CGROUPS: Final = Path("/sys/fs/cgroup")


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
