"""`.md`: for the comment of a pull request, or the summary of a job.

Foreign text stands in code spans alone, where neither Markdown, HTML nor a mention means anything
(GitHub Flavored Markdown, sections 6.3 and 4.10 for tables).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aotc.base.text import printable
from aotc.report.sheet import Bars, Cell, Facts, Heading, Lines, Note, Part, Table
from aotc.report.sheets.judged import run_sheet
from aotc.spec.run_report import RunReport

# Of a comment.
MAX_CHARACTERS: Final = 65536
_MAX_ROWS: Final = 60
# Of a cell of a table, and of a line that stands alone, such as a fix.
_LONGEST: Final = 240
_LONGEST_LINE: Final = 1000
_SIGNS: Final = {"good": "✅ ", "bad": "❌ ", "warn": "⚠️ "}


def markdown_text(report: RunReport) -> str:
    """The outcome and its figures, every breach with its fix, and folded tables of the rest."""
    return as_markdown(run_sheet(report))


def as_markdown(sheet: Iterable[Part]) -> str:
    """A sheet whose titles, labels, statuses and notes are ours; its other texts may be foreign.

    Tables that would make it longer than a comment may be are left out, the last ones first.
    """
    shown = [(part, text) for part in sheet if (text := _text(part))]
    tables = [index for index, (part, _) in enumerate(shown) if isinstance(part, Table)]
    for kept in range(len(tables), -1, -1):
        left = tables[kept:]
        texts = [text for index, (_, text) in enumerate(shown) if index not in left]
        if left:
            texts.append(f"Too long for a comment: {len(left)} tables are left out.")
        found = "\n\n".join(texts) + "\n"
        if len(found) <= MAX_CHARACTERS:
            break
    return found


def _text(part: Part) -> str:
    match part:
        case Heading():
            return f"### {_SIGNS.get(part.mood, '')}{_code(part.text)} {part.status}".rstrip()
        case Facts():
            rows = [(label, _code(text, _LONGEST_LINE)) for label, text in part.rows if text]
            if part.title:
                return "  \n".join((f"- **{part.title}**", *(f"  {k}: {text}" for k, text in rows)))
            return " · ".join(f"{label} {text}" for label, text in rows)
        case Table():
            return _table(part) if part.rows else ""
        case Bars():
            rows_of_text = [(name, str(number), text) for name, number, text in part.rows]
            number, _, text = part.columns
            return _table(Table(part.title, (number, text), rows_of_text))
        case Lines():
            return "\n".join(f"    {printable(line)}" for line in part.lines)
        case Note():
            return f"**{part.text}**" if part.mood else part.text


def _table(part: Table) -> str:
    heads, rows = part.filled(part.rows[:_MAX_ROWS])
    titles = " | ".join(head.removeprefix("#") for head in heads)
    # A pipe would end the cell.
    sign = _sign if part.matrix else _no_sign
    cells = ([sign(cell) + _code(cell).replace("|", "\\|") for cell in row] for row in rows)
    lines = [f"| {titles} |", f"|{' --- |' * len(heads)}"]
    lines += [f"| {' | '.join(row)} |" for row in cells]
    if (more := len(part.rows) - _MAX_ROWS) > 0:
        lines.append(f"| and {more} more |{' |' * (len(heads) - 1)}")
    if part.leading:
        return "\n".join(lines)
    title = f"<details><summary>{part.title} ({len(part.rows)})</summary>"
    return "\n".join((title, "", *lines, "", "</details>"))


def _sign(cell: Cell) -> str:
    """The sign of the mood of a cell, which is that of its first line."""
    first = cell if isinstance(cell, str) else next(iter(cell), "")
    return _SIGNS.get(getattr(first, "mood", ""), "")


def _no_sign(cell: Cell) -> str:
    return ""


def _code(text: Cell, longest: int = _LONGEST) -> str:
    """`text` in a code span; nothing for an empty text."""
    shown = printable(text if isinstance(text, str) else "; ".join(text), longest)
    if not shown.strip():
        return ""
    # A run of backticks as long as the fence would end the span.
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"
