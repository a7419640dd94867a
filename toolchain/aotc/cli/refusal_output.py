"""How a refusal is reported: in plain text on standard error, or as a JSON document."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from aotc.cli.fixture_words import with_fixtures_in_words
from aotc.errors import AotcError
from aotc.escaping import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.contract.results.command_reports import ErrorReport

_WIDEST = 120
_WIDEST_NAME = 36
# Of a table; `--json` has every row.
_MAX_GROUPS = 12
# Of further errors; likewise.
_MAX_OTHERS = 50
# What a column is called on a terminal, where `--json` calls it by another name.
_COLUMNS = {"mend": "fix"}
_LABELS = ("what", "where", "place", "expected", "found", "fix")
# What a label is called where the field's name would not be understood.
_LABEL_WORDS = {"place": "at"}


def error_lines(error: AotcError, width: int | None = None) -> list[str]:
    """The error and the further ones in `also`, as lines; of too many the first.

    Lines of foreign text that are longer than `width`, a terminal's, go on below their beginning:
    the terminal itself would let them go on where our own lines begin.
    """
    lines = [f"error: {error.code} {error.title}"]
    for label in _LABELS:
        said = getattr(error, label)
        if text := with_fixtures_in_words("" if said is None else str(said).strip()):
            # A command in a fix is to be copied in one piece.
            room = None if label == "fix" else width
            lines += _indented(
                f"  {_LABEL_WORDS.get(label, label) + ':':<10}", printable(text), room
            )
    others = list(error.every())[1:]
    if others:
        lines.append(f"and {len(others)} more:")
    for other in others[:_MAX_OTHERS]:
        lines += _indented("  ", printable(with_fixtures_in_words(other.line())), width)
        if other.fix not in (error.fix, ""):
            lines.append(f"    fix: {printable(other.fix)}")
    if len(others) > _MAX_OTHERS:
        lines.append(f"  and {len(others) - _MAX_OTHERS} that only --json lists")
    return lines


def _indented(label: str, text: str, width: int | None) -> list[str]:
    """`text` after its label, in lines of `width` columns that begin below it."""
    if width is None:
        return [label + text]
    # Letters may be two columns wide.
    room = max((width - len(label)) // (1 if text.isascii() else 2), 20)
    if len(text) <= room:
        return [label + text]
    first, *others = textwrap.wrap(text, room)
    return [label + first, *(" " * len(label) + other for other in others)]


def tables(error: AotcError) -> list[RenderableType]:
    """What the error and every further one are about, one table for equal rows."""
    from aotc.cli.render import section

    found = {
        tuple(tuple(row.items()) for row in refused.rows): refused for refused in error.every()
    }
    shown = []
    for rows in found:
        if rows:
            first, *others = (_COLUMNS.get(name, name) for name, _ in rows[0])
            shown.append(section(first, others, _grouped(rows)))
    return shown


def _grouped(rows: tuple[tuple[tuple[str, str], ...], ...]) -> list[list[str]]:
    """One row for all that differ in the first column alone; the largest groups come first."""
    from aotc.cli.render import provider

    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        first, *others = (_cut(provider(text)) for _, text in row)
        groups.setdefault(tuple(others), []).append(first)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    shown = [[_several(names), *others] for others, names in ordered[:_MAX_GROUPS]]
    left = sum(len(names) for _, names in ordered[_MAX_GROUPS:])
    if left:
        shown.append([f"and {left} more", *("" for _ in shown[0][1:])])
    return shown


def _several(names: list[str]) -> str:
    first = names[0] if len(names[0]) <= _WIDEST_NAME else f"…{names[0][1 - _WIDEST_NAME :]}"
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _cut(text: str) -> str:
    """A cell for the terminal; `--json` has the full text."""
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def error_answer(error: AotcError) -> ErrorReport:
    """The error and every further one, as a document."""
    from aotc.contract.results.command_reports import ErrorReport
    from aotc.contract.results.reports import Refusal

    return ErrorReport(
        exit_status=error.exit_status,
        errors=tuple(
            Refusal(
                code=refused.code,
                what=refused.what,
                where=refused.where,
                expected=refused.expected,
                found=refused.found,
                fix=refused.fix,
                rows=refused.rows,
                place=refused.place,
            )
            for refused in error.every()
        ),
    )
