"""Tables and figures for the terminal; plain text where standard output is no terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from aotc.cli.failure import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.contract.manifest import Finding

# Of text that goes to a file or a pipe, unless COLUMNS says otherwise.
PLAIN_WIDTH = 120


def show(parts: Iterable[RenderableType], *, file: TextIO | None = None) -> None:
    """Write the parts, a blank line between any two."""
    from rich.console import Console
    from rich.text import Text

    target = file or sys.stdout
    terminal = target.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = None if terminal else int(columns) if columns.isdigit() else PLAIN_WIDTH
    console = Console(
        file=target, width=width, highlight=False, markup=False, emoji=False, legacy_windows=False
    )
    with console.capture() as captured:
        for index, part in enumerate(parts):
            if index:
                console.print(Text())
            console.print(part)
    text = captured.get()
    if not terminal:
        # Cells are padded to their column's width.
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    target.write(text)


def heading(text: str, status: str = "", style: str = "") -> RenderableType:
    """A line that names what is shown, and its status."""
    from rich.text import Text

    line = Text(printable(text), style="bold")
    if status:
        line.append(f"  {printable(status)}", style=f"bold {style}".strip())
    return line


def facts(rows: Sequence[tuple[str, str]]) -> RenderableType:
    """Labels and what is said of each; a row with nothing to say is left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        if text:
            table.add_row(f"  {label}", Text(printable(text)))
    return table


def section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """A titled table; the title stands in the first column's head."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, column in enumerate((title, *columns)):
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    for row in rows:
        first, *others = row
        table.add_row(Text(f"  {printable(first)}"), *(Text(printable(cell)) for cell in others))
    return table


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


def short(digest: str) -> str:
    """The first 12 digits of a digest."""
    return digest[:12]


def provider(name: str) -> str:
    """An execution provider without its suffix: `CPU`."""
    return name.removesuffix("ExecutionProvider")


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def findings_view(findings: Sequence[Finding]) -> list[RenderableType]:
    """A section of what was noticed and refuses nothing; nothing where there is nothing."""
    rows = [
        (each.code, f"{each.where}: {each.what}" if each.where else each.what) for each in findings
    ]
    return [section("findings", ("",), rows)] if rows else []
