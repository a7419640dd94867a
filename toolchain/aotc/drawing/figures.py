"""Figures as a page shows them."""

from __future__ import annotations

from aotc.reporting.plain_values import size


def bytes_text(count: float | None) -> str:
    """Bytes in a decimal unit; `unknown` for None."""
    return "unknown" if count is None else size(round(count))


def share_text(share: float | None) -> str:
    """A share in percent; empty for None."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def short_provider(name: str) -> str:
    """A provider without the words that all names of ONNX Runtime end in."""
    return name.removesuffix("ExecutionProvider") or name
