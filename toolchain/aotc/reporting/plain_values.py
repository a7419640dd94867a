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


def duration(seconds: float) -> str:
    """Seconds to three digits, in the unit that suits: `27.1 us`, `5.00 ms`, `12.3 s`."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(number: float) -> str:
    return (
        f"{number:.0f}"
        if number >= 99.95
        else f"{number:.1f}"
        if number >= 9.995
        else f"{number:.2f}"
    )


def listed(items: Sequence[str]) -> str:
    """Names in one cell, of many the first `MAX_LISTED`."""
    rest = len(items) - MAX_LISTED
    return ", ".join(items[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")
