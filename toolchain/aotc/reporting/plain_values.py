"""Values in words, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Of a list in one cell; the rest is counted.
MAX_LISTED: Final = 8


def size(count: int) -> str:
    """Bytes in decimal units: `160.1 kB`."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def listed(items: Sequence[str]) -> str:
    """Names in one cell, of many the first `MAX_LISTED`."""
    rest = len(items) - MAX_LISTED
    return ", ".join(items[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")
