"""What the system says of itself in text files."""

from __future__ import annotations

from pathlib import Path


def system_text(path: Path) -> str:
    """The text of a file such as /proc/cpuinfo; "" if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
