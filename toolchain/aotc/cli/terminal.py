"""The terminal: tables and figures, and streams that may be full, closed or gone."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from aotc.base.errors import AotcError
from aotc.base.files import failures
from aotc.base.text import MAX_CHARACTERS, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from aotc.spec.payload import Finding


# Tables and figures; plain text where standard output is not a terminal.
#
# Whatever is shown passes `printable`: a text is one line, and what has several is a sequence.


# One line, or several.
Cell = str | Sequence[str]
# Of text that goes to a file or a pipe, unless COLUMNS says otherwise.
PLAIN_WIDTH = 120
# Of a terminal that does not know its width, and says 0.
_USUAL_WIDTH = 80
# Of a table, or of a cell that holds lines.
_MAX_ROWS = 200
_BAR = 40
_WIDEST_NAME = 80
_LEAST_NAME = 16
# Of a line that several texts make up, each of which is cut by itself.
_LONGEST_LINE = 4 * MAX_CHARACTERS


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
        text = "".join(f"{no_command(line.rstrip())}\n" for line in text.splitlines())
    with answering(target):
        target.write(text)


def write_lines(lines: Iterable[str], *, file: TextIO | None = None) -> None:
    """Write each of `lines` as one line."""
    target = file or sys.stdout
    with answering(target):
        target.writelines(f"{no_command(printable(line, _LONGEST_LINE))}\n" for line in lines)


def no_command(line: str) -> str:
    """A line that GitHub Actions takes for no command of ours, whatever name it begins with.

    Its runner obeys lines that begin with `::`, and `##[` anywhere in one.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return line
    begin = len(line) - len(line.lstrip())
    if line.startswith("::", begin):
        line = f"{line[:begin]}: :{line[begin + 2 :]}"
    return line.replace("##[", "## [")


def write_error(lines: Sequence[str], file: TextIO) -> None:
    """Write the lines of an error, each as one line; its first word is coloured on a terminal."""
    if not (file.isatty() or os.environ.get("FORCE_COLOR")):
        write_lines(lines, file=file)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, markup=False, emoji=False, legacy_windows=False)
    with console.capture() as captured:
        for line in lines:
            text = Text(no_command(printable(line, _LONGEST_LINE)))
            text.highlight_regex(r"^error:", f"bold {FAILED}")
            # A line that is too long goes on where the terminal lets it: a command is copied whole.
            console.print(text, soft_wrap=True)
    with answering(file):
        file.write(captured.get())


def terminal_width(file: TextIO) -> int | None:
    """Columns of the terminal that `file` is; None where it is none."""
    try:
        # A terminal that does not know its width says 0.
        return (
            (os.get_terminal_size(file.fileno()).columns or _USUAL_WIDTH) if file.isatty() else None
        )
    except (OSError, ValueError):
        return None


def heading(
    text: str, status: str = "", style: str = "", *, one_line: bool = False
) -> RenderableType:
    """A line that names what is shown, and its status.

    Where it is broken, the rest is indented; with `one_line` it is cut, the name before the status.
    """
    from rich.text import Text

    line = _cell(text, style="bold")
    said = Text(f"  {printable(status)}" if status else "", style=f"bold {style}".strip())
    return _Cut(line, said) if one_line else _Hanging(line.append_text(said))


def facts(rows: Sequence[tuple[str, Cell]]) -> RenderableType:
    """Labels with their texts; a row whose text is empty is left out."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in _first_rows([row for row in rows if row[1]]):
        table.add_row(_cell(label, "  "), _cell(text))
    return table


def one_line_facts(rows: Sequence[tuple[str, str]]) -> RenderableType:
    """Labels with their texts, each in one line that is cut where it is too long."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    kept = [(f"  {label}", text) for label, text in rows if text]
    widest = max((len(label) for label, _ in kept), default=0)
    table.add_column(style="dim", no_wrap=True, min_width=widest)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for label, text in kept:
        table.add_row(_cell(label), _cell(text))
    return table


def one_line_section(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> RenderableType:
    """A titled table as `section`, each row of which is one line that is cut where needed."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in (title, *columns):
        table.add_column(_cell(column), no_wrap=True, overflow="ellipsis")
    for first, *others in rows:
        table.add_row(_cell(first, "  "), *(_cell(cell) for cell in others))
    return table


def section(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    """A titled table; the title stands in the first column's head."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, column in enumerate((title, *columns)):
        table.add_column(_cell(column), overflow="fold", no_wrap=index == 0)
    for first, *others in _first_rows(rows):
        # It is not broken, and would take the room of the others.
        table.add_row(_cell(first, "  ", limit=_WIDEST_NAME), *(_cell(cell) for cell in others))
    return table


def histogram(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, int, str]]
) -> RenderableType:
    """A titled table of numbers, each with a bar; the last text of a row stands out."""
    from rich.bar import Bar
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, column in enumerate((title, *columns)):
        table.add_column(_cell(column), justify="right" if index == 1 else "left", no_wrap=True)
    largest = max(number for _, number, _ in rows)
    for name, number, marked in rows:
        bar = Bar(largest, 0, number, width=_BAR)
        table.add_row(_cell(name, "  "), _cell(str(number)), bar, _cell(marked, style="bold"))
    return table


def listing(lines: Sequence[str]) -> RenderableType:
    """Lines as they are; where one is too wide, the rest of it is indented."""
    from rich.console import Group

    return Group(*(_Hanging(line) for line in _cell(lines).split("\n", allow_blank=True)))


def prose(text: str) -> RenderableType:
    """A paragraph, in as many lines as the width asks for."""
    return _cell(text)


def _cell(text: Cell, indent: str = "", style: str = "", limit: int = MAX_CHARACTERS) -> Text:
    """Lines of text for a table, each of which stays one line whatever is in it."""
    from rich.text import Text

    if isinstance(text, Result):
        style = f"{style} {text.style}".strip()
    lines = (text,) if isinstance(text, str) else text
    shown = [f"{indent}{printable(line, limit)}" for line in lines[:_MAX_ROWS]]
    if len(lines) > _MAX_ROWS:
        shown.append(f"{indent}and {len(lines) - _MAX_ROWS} more")
    return Text("\n".join(shown), style=style)


def _first_rows(rows: Sequence[Sequence[Cell]]) -> list[Sequence[Cell]]:
    """The rows of a table, of too many the first; `--json` has all."""
    left = len(rows) - _MAX_ROWS
    if left <= 0:
        return list(rows)
    return [*rows[:_MAX_ROWS], (f"and {left} more", *("" for _ in rows[0][1:]))]


class _Cut:
    """A name and a status in one line; where it is too wide, the name is cut first."""

    def __init__(self, name: Text, status: Text) -> None:
        self.name, self.status = name, status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        name, width = self.name.copy(), options.max_width
        name.truncate(max(width - self.status.cell_len, _LEAST_NAME), overflow="ellipsis")
        shown = name.append_text(self.status)
        shown.truncate(width, overflow="ellipsis")
        yield shown


class _Hanging:
    """Text whose lines but the first are indented, where it is too wide for one."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        from rich.text import Text

        first, *others = self.text.wrap(console, max(options.max_width - 2, 1)) or [Text()]
        yield first
        for line in others:
            yield Text("  ").append_text(line)


def short(digest: str) -> str:
    """The first 12 digits of a digest."""
    return digest[:12]


def provider(name: str) -> str:
    """An execution provider without its suffix: `CPU`."""
    return name.removesuffix("ExecutionProvider")


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def to_minute(moment: str) -> str:
    """A time of RFC 3339, to the minute."""
    return moment[:16].replace("T", " ")


def sections(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> list[RenderableType]:
    """The section alone, or nothing where there are no rows."""
    return [section(title, columns, rows)] if rows else []


def findings_view(findings: Sequence[Finding]) -> list[RenderableType]:
    """A section of what was noticed and refuses nothing; nothing where there is nothing."""
    rows = [
        (noticed(found.code), f"{_where(found)}: {found.what}" if found.where else found.what)
        for found in findings
    ]
    return sections("findings", ("",), rows)


def _where(finding: Finding) -> str:
    if finding.code == "AOTC-N005":
        return fixture_in_words(finding.where)
    return with_fixtures_in_words(finding.where)


# Standard output and standard error as they may be: full, closed at the other end, or gone.


STDOUT = "standard output"
_SIZES: Final = ("COLUMNS", "LINES")


def prepare() -> None:
    """Make standard streams ready for any text; what is written to a closed one is dropped."""
    _take_closed()
    for name in _SIZES:
        # Libraries read them too, and fail on what is a digit and no number.
        if not re.fullmatch("[1-9][0-9]{0,4}", os.environ.get(name, "1")):
            del os.environ[name]
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # What the terminal's encoding cannot show is escaped, and never an error.
            reconfigure(errors="backslashreplace")


def _take_closed() -> None:
    """Open the null device in place of standard streams that are closed.

    Otherwise the next file that is opened gets that number, and a library that writes to standard
    error writes into the file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def failure_of(stream: TextIO) -> OSError | None:
    """The error that keeps a stream from being written, if any; from then on it drops all text."""
    try:
        stream.flush()
    except OSError as error:
        silence(stream)
        return error
    return None


def silence(stream: TextIO) -> None:
    """Drop what a stream still holds, so that it does not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


def lost_answer(error: OSError) -> AotcError:
    """The AOTC-I018 or I026 of an answer that standard output does not accept."""
    refusal = failures.cannot_write(error, "cannot write the answer", STDOUT)
    refusal.fix = "Free space where standard output is directed, or direct it elsewhere."
    return refusal


@contextlib.contextmanager
def answering(stream: TextIO) -> Iterator[None]:
    """Around writes to a stream: a failure of standard output raises AOTC-I018 or I026.

    Text that could not be written is dropped, so that no later flush fails on it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is not sys.stdout:
            raise
        silence(stream)
        raise lost_answer(error) from None


@contextlib.contextmanager
def may_be_lost(stream: TextIO) -> Iterator[None]:
    """Around writes whose loss is accepted, such as messages on standard error."""
    try:
        yield
        stream.flush()
    except OSError:
        silence(stream)


# The colours of results, in one place: passed is green, failed red, and what was noticed yellow.
#
# They are shown on a terminal alone; NO_COLOR takes them away, and FORCE_COLOR shows them in a pipe
# too, as rich reads both.


PASSED: Final = "green"
FAILED: Final = "red"
NOTICED: Final = "yellow"

_OF_STATUS: Final = {
    "passed": PASSED,
    "ok": PASSED,
    "failed": FAILED,
    "note": NOTICED,
}


class Result(str):
    """The text of a cell that is a result, with its colour; it is compared and cut as any text."""

    style: str

    def __new__(cls, text: str, style: str) -> Result:
        """The text in a style of rich's."""
        made = super().__new__(cls, text)
        made.style = style
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


def by_status(status: str) -> str:
    """A status in the colour of its result, if it has one."""
    style = _OF_STATUS.get(status)
    return Result(status, style) if style is not None else status


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
}
_NAME: Final = re.compile(
    rf"({'|'.join(_CORNERS)})(-sampled)?|"
    rf"({'|'.join(_NUMBERED)})(\d+)(?:-(negative|positive|sampled))?"
)
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


@contextlib.contextmanager
def escaped_warnings() -> Iterator[None]:
    """Write each warning as one line on standard error, in which nothing steers the terminal."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        write_lines([f"{category.__name__}: {message}"], file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
