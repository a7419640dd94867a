"""How a refusal is told: in plain text on standard error, or as a JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.errors import AotcError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.contract.answers import ErrorAnswer

_WIDEST = 120
_WIDEST_NAME = 36
# Of a table; `--json` has every row.
_MOST_GROUPS = 12
_LABELS = ("what", "where", "expected", "found", "mend")


def printable(text: str) -> str:
    """`text` with what could steer a terminal written out, as names and messages may be foreign."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each == "\n"
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def error_lines(error: AotcError) -> list[str]:
    """The error and every further one in `also`, as lines."""
    lines = [f"error: {error.code} {error.title}"]
    for label in _LABELS:
        text = getattr(error, label)
        if text:
            first, *more = (printable(line) for line in text.rstrip().splitlines())
            lines.append(f"  {label + ':':<10}{first}")
            lines += [f"  {'':<10}{line}" for line in more]
    others = list(_flat(error.also))
    if others:
        lines.append(f"and {len(others)} more:")
    for each in others:
        lines.append(f"  {printable(each.line())}")
        if each.mend not in (error.mend, ""):
            lines.append(f"    mend: {printable(each.mend)}")
    return lines


def tables(error: AotcError) -> list[RenderableType]:
    """What the error and every further one are about, one table for equal rows."""
    from aotc.cli.render import section

    found = {tuple(tuple(row.items()) for row in each.rows): each for each in _flat((error,))}
    shown = []
    for rows in found:
        if rows:
            first, *others = (name for name, _ in rows[0])
            shown.append(section(first, others, _grouped(rows)))
    return shown


def _grouped(rows: tuple[tuple[tuple[str, str], ...], ...]) -> list[list[str]]:
    """Rows that differ in the first column alone as one; those of most stand first."""
    from aotc.cli.render import provider

    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        first, *others = (_cut(provider(text)) for _, text in row)
        groups.setdefault(tuple(others), []).append(first)
    ordered = sorted(groups.items(), key=lambda each: -len(each[1]))
    shown = [[_several(names), *others] for others, names in ordered[:_MOST_GROUPS]]
    left = sum(len(names) for _, names in ordered[_MOST_GROUPS:])
    if left:
        shown.append([f"and {left} more", *("" for _ in shown[0][1:])])
    return shown


def _several(names: list[str]) -> str:
    first = names[0] if len(names[0]) <= _WIDEST_NAME else f"…{names[0][1 - _WIDEST_NAME :]}"
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _cut(text: str) -> str:
    """A cell for the terminal; `--json` has the whole text."""
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def error_answer(error: AotcError) -> ErrorAnswer:
    """The error and every further one, as a document."""
    from aotc.contract.answers import ErrorAnswer
    from aotc.contract.report import Refusal

    return ErrorAnswer(
        exit_status=error.exit_status,
        errors=tuple(
            Refusal(
                code=each.code,
                what=each.what,
                where=each.where,
                expected=each.expected,
                found=each.found,
                mend=each.mend,
                rows=each.rows,
            )
            for each in _flat((error,))
        ),
    )


def _flat(errors: tuple[AotcError, ...]) -> list[AotcError]:
    found: list[AotcError] = []
    for error in errors:
        found += [error, *_flat(error.also)]
    return found
