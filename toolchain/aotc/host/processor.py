"""What tells one processor's arithmetic from another's: model, stepping, microcode, features."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Fields of /proc/cpuinfo: first those of x86-64, then those of arm64.
_FIELDS: Final = frozenset(
    {
        *("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
        "Features",
    }
)


def processor_identity() -> tuple[str, ...]:
    """The kinds of processors of this machine, one text each; none where the system is silent."""
    try:
        return identity_in(Path("/proc/cpuinfo").read_text("utf-8", "replace"))
    except OSError:
        return ()


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
