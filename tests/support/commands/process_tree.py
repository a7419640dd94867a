"""Processes that a command started, and which of them are still running."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int) -> set[int]:
    """Processes below `pid`, whatever their sessions."""
    parents: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(place.name)] = int(fields[1])
    found, pending = set(), {pid}
    while pending:
        pending = {child for child, parent in parents.items() if parent in pending}
        found |= pending
    return found


def alive(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found.add(pid)
    return found
