"""What the terminal shows of answers that are the same: on which CPUs, and from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.cli.render import count, duration, section
from aotc.cli.result_styles import failed
from aotc.contract.results.build_evidence import Repeats
from aotc.contract.results.reports import VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType


def integer_views(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on the variants of a quantized model; none if none multiplies integers."""
    rows = [
        (variant.name, *variant.integer_products.in_words(), _time(variant))
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


def repeat_views(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on variants whose equal calls differed; none if there is no such variant."""
    rows = [
        (variant.name, *_cells(variant.repeats))
        for variant in variants
        if variant.repeats is not None and variant.repeats.differing_runs
    ]
    columns = ("bytes", "calls", "equal with")
    return [section("equal calls", columns, rows)] if rows else []


def _cells(repeats: Repeats) -> tuple[str, str, str]:
    names = ", ".join(output.output for output in repeats.outputs)
    state = failed(f"{repeats.differing_runs} differ in {names}")
    reloaded = ", one after a reload" if repeats.reloaded else ""
    return state, f"{count(repeats.runs, 'call')}{reloaded}", repeats.setting or "no setting"
