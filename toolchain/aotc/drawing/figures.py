"""Figures as a page shows them."""

from __future__ import annotations

from aotc.reporting.plain_values import size


def bytes_text(count: float | None) -> str:
    """Bytes in a decimal unit; `unknown` for None."""
    return "unknown" if count is None else size(round(count))


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
