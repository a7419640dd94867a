"""A sheet: an answer as headings, facts, tables and notes, in the order in which they are read.

A function for each answer makes its sheet (`aotc.report.sheets`).  A renderer for each form shows
any sheet, and knows of no answer: `aotc.cli.terminal`, `aotc.report.html.page` and
`aotc.report.markdown`.  JSON is the record itself.  Texts may be foreign: renderers escape them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from aotc.base.codes import REASONS
from aotc.base.errors import expected_and_found
from aotc.base.records import record
from aotc.base.text import duration

if TYPE_CHECKING:
    from aotc.spec.payload import Finding
    from aotc.spec.reports import Refusal

# Moods of a text: a result as it should be, as it should not be, and what refuses nothing; pages
# have more of their own.
PASSED: Final = "good"
FAILED: Final = "bad"
NOTICED: Final = "warn"
_OF_STATUS: Final = {
    "passed": PASSED,
    "ok": PASSED,
    "failed": FAILED,
    "note": NOTICED,
    "not-judged": NOTICED,
}

_CODE: Final = re.compile(r"AOTC-[A-Z]\d{3}\b")
# One line, or several.
Cell = str | Sequence[str]
T = TypeVar("T")


@record(kw_only=False)
class Heading:
    """What the parts below it are about, and its status."""

    text: str
    status: str = ""
    mood: str = ""


@record(kw_only=False)
class Facts:
    """Labels with their texts; a row whose text is empty is not shown."""

    rows: Sequence[tuple[str, Cell]]
    title: str = ""


@record(kw_only=False)
class Table:
    """A titled table, which is not shown without rows; nor are columns in which no cell has text.

    `columns` names all but the first column, where the rows are named; `#` stands before one of
    numbers.  If it is `grouped`, rows that begin alike are a group, whose name is shown once.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    name: Annotated[str, "head of the first column, where the title is not"] = ""
    limit: Annotated[int, "rows of the table or a group that a terminal shows; 0 for all"] = 0
    grouped: bool = False
    extra: Annotated[int, "last columns, which a terminal has no room for"] = 0
    note: Annotated[str, "what explains it; likewise"] = ""
    leading: Annotated[bool, "what people came for: Markdown does not fold it"] = False
    matrix: Annotated[bool, "each cell is a result: pages fill it with the mood of its line"] = (
        False
    )

    def filled(self, rows: Sequence[Sequence[Cell]]) -> tuple[list[str], list[list[Cell]]]:
        """Heads, that of the names first, and `rows`, without columns in which there is nothing."""
        heads = (self.name, *self.columns)
        used = [n for n in range(len(heads)) if not n or any(row[n] for row in rows)]
        return [heads[n] for n in used], [[row[n] for n in used] for row in rows]


def table(
    title: str,
    items: Iterable[T],
    *columns: tuple[str, Callable[[T], Cell]],
    **options: Any,
) -> Table:
    """A table with a row for each item: heads of columns, with what makes a cell of an item.

    `options` are the other fields of `Table`.
    """
    (name, _), *others = columns
    rows = [[cell(item) for _, cell in columns] for item in items]
    return Table(title, [head for head, _ in others], rows, name=name, **options)


@record(kw_only=False)
class Bars:
    """A titled table of names, numbers with a bar each, and texts that stand out.

    `columns` are the heads of the numbers, the bars and the texts.
    """

    title: str
    columns: tuple[str, str, str]
    rows: Sequence[tuple[str, int, str]]


@record(kw_only=False)
class Lines:
    """Lines as they are."""

    lines: Sequence[str]


@record(kw_only=False)
class Note:
    """A paragraph."""

    text: str
    mood: str = ""


Part = Heading | Facts | Table | Bars | Lines | Note
Sheet = list[Part]


class Screen(Sheet):
    """A sheet for one look: each row of it is one line, which is cut where it is too long."""


# Texts of cells.


class Result(str):
    """The text of a cell that is a result, with its mood; it is compared and cut as any text.

    `link` is where a page leads from it: a relative URL, or `#` and the id of an element.
    """

    mood: str
    link: str

    def __new__(cls, text: str, mood: str, link: str = "") -> Result:
        """The text in a mood."""
        made = super().__new__(cls, text)
        made.mood, made.link = mood, link
        return made


def passed(text: str) -> Result:
    """A result as it should be."""
    return Result(text, PASSED)


def failed(text: str) -> Result:
    """A result as it should not be, or that is missing."""
    return Result(text, FAILED)


def noticed(text: str) -> Result:
    """What was noticed, and refuses nothing."""
    return Result(text, NOTICED)


def verdict(good: bool, bad: str = "FAILED", well: str = "passed") -> Result:
    """`passed`, or what is said of what is not."""
    return passed(well) if good else failed(bad)


def by_status(status: str) -> str:
    """A status in the mood of its result, if it has one."""
    mood = _OF_STATUS.get(status)
    return Result(status, mood) if mood is not None else status


def stated(value: T | None, form: Callable[[T], str]) -> str:
    """A value in its form; `-` for one that is not known."""
    return "-" if value is None else form(value)


def with_titles(text: str) -> str:
    """A text in which each reason code is followed by its title."""
    return _CODE.sub(
        lambda found: f"{found[0]} {REASONS[found[0]].title}" if found[0] in REASONS else found[0],
        text,
    )


def span(low: float, high: float) -> str:
    """From some seconds to some more."""
    return f"{duration(low)} to {duration(high)}"


def short(digest: str) -> str:
    """The first 12 digits of a digest."""
    return digest[:12]


def provider(name: str) -> str:
    """An execution provider without its suffix: `CPU`."""
    return name.removesuffix("ExecutionProvider")


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first(items: Sequence[str], most: int) -> str:
    """The first of the items in one line, and how many more there are."""
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" and {rest} more" if rest > 0 else "")


def to_minute(moment: str) -> str:
    """A time of RFC 3339, to the minute."""
    return moment[:16].replace("T", " ")


def findings_table(findings: Sequence[Finding]) -> Table:
    """What was noticed and refuses nothing."""
    rows = []
    for found in findings:
        where, what = finding_in_words(found.code, found.where, found.what)
        rows.append((noticed(found.code), f"{where}: {what}" if where else what))
    return Table("findings", ("",), rows)


def refusals_table(title: str, refusals: Sequence[Refusal]) -> Table:
    """The code of each refusal, its reason, and the fix below it."""
    rows: list[Sequence[Cell]] = []
    for refusal in refusals:
        where = f"{refusal.where}: " if refusal.where else ""
        what = refusal.what + expected_and_found(refusal.expected, refusal.found)
        said = with_fixtures_in_words(f"{where}{what}")
        rows.append((failed(refusal.code), (said, *filter(None, (refusal.fix,)))))
    return Table(title, ("",), rows)


# Names of fixtures in words: what inputs a fixture holds, rather than what a build calls it.


_CORNERS: Final = {
    "opt": "optimal sizes",
    "min": "minimum sizes",
    "max": "maximum sizes",
}
_NUMBERED: Final = {
    "user": "your inputs",
    "sample": "your samples",
    "bucket": "sizes of buckets",
    "random": "random sizes",
    "padded": "padded sizes",
    "less": "less padded sizes",
    "shown": "inputs searched for",
    "stated": "stated values",
}
_NAME: Final = re.compile(
    rf"({'|'.join(_CORNERS)})(-sampled)?|"
    rf"({'|'.join(_NUMBERED)})(\d+)(?:-(negative|positive|sampled))?"
)
# Findings whose place is the name of a fixture alone.
_OF_A_FIXTURE: Final = ("AOTC-N005", "AOTC-N022")
_IN_TEXT: Final = re.compile(rf"\bfixture ({_NAME.pattern})(?![\w.-])")


def fixture_in_words(name: str) -> str:
    """`optimal sizes` for `opt`; a name that no build gives stays as it is."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name
    corner, sampled, kind, number, sign = found.groups()
    if corner:
        return f"{_CORNERS[corner]} with your samples" if sampled else _CORNERS[corner]
    text = f"{_NUMBERED[kind]} {int(number) + 1}"
    if sign == "sampled":
        return f"{text} with your samples"
    return f"{text} with {sign} inputs" if sign else text


def with_fixtures_in_words(text: str) -> str:
    """A text with `fixture NAME` in words."""
    return _IN_TEXT.sub(lambda found: f"fixture of {fixture_in_words(found[1])}", text)


def finding_in_words(code: str, where: str, what: str) -> tuple[str, str]:
    """Where a finding is and what it says; some name nothing but a fixture."""
    named = fixture_in_words if code in _OF_A_FIXTURE else with_fixtures_in_words
    return named(where), with_fixtures_in_words(what)
