"""Refusals of a report as a table: the code, the reason, and the fix below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.render import Cell, section
from aotc.cli.result_styles import failed
from aotc.contract.results.reports import Refusal
from aotc.errors import expected_and_found

if TYPE_CHECKING:
    from rich.console import RenderableType


def refusals_section(title: str, refusals: tuple[Refusal, ...]) -> RenderableType:
    """A table with one row for each refusal."""
    rows: list[tuple[str, Cell]] = []
    for refusal in refusals:
        where = f"{refusal.where}: " if refusal.where else ""
        fix = (refusal.fix,) if refusal.fix else ()
        rows.append((failed(refusal.code), (f"{where}{_reason(refusal)}", *fix)))
    return section(title, ("",), rows)


def _reason(refusal: Refusal) -> str:
    return refusal.what + expected_and_found(refusal.expected, refusal.found)
