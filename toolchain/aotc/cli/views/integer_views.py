"""What the terminal shows of integer products: on which CPUs their sums are the same, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.cli.render import duration, section
from aotc.contract.results.reports import VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType


def integer_views(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on the variants of a quantized model; none if none multiplies integers."""
    rows = [
        (
            variant.name,
            *variant.integer_products.in_words(),
            _time(variant),
        )
        for variant in variants
        if variant.integer_products is not None
    ]
    columns = ("answers", "because", "time")
    return [section("8-bit integers", columns, rows)] if rows else []


def _time(variant: VariantSummary) -> str:
    timed = variant.timed_against
    if timed is None:
        return "-"
    return f"{duration(timed.seconds)}, {timed.ratio:.2f} of {timed.other}"
