"""Figures as a page shows them."""

from __future__ import annotations


def bytes_text(size: float | None) -> str:
    """Bytes in a decimal unit; `unknown` for None."""
    if size is None:
        return "unknown"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def seconds_text(seconds: float) -> str:
    """A duration with the unit that fits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def share_text(share: float | None) -> str:
    """A share in percent; empty for None."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def short_provider(name: str) -> str:
    """A provider without the words that all names of ONNX Runtime end in."""
    return name.removesuffix("ExecutionProvider") or name
