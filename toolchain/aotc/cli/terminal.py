"""The terminal: sheets as it shows them, and streams that may be full, closed or gone."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, TextIO

from aotc.base.errors import AotcError
from aotc.base.files import failures
from aotc.base.text import MAX_CHARACTERS, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from aotc.report.sheet import Bars, Cell, Facts, Heading, Part, Sheet, Table


# Sheets, and tables of help; plain text where standard output is not a terminal.
#
# Whatever is shown passes `printable`: a text is one line, and what has several is a sequence.


# The colours of moods, on a terminal alone; NO_COLOR takes them away, and FORCE_COLOR shows them in
# a pipe too, as rich reads both.
_COLOURS: Final = {"good": "green", "bad": "red", "warn": "yellow"}
# Of text that goes to a file or a pipe, unless COLUMNS says otherwise.
PLAIN_WIDTH = 120
# Of a terminal that does not know its width, and says 0.
_USUAL_WIDTH = 80
# Of a table, or of a cell that holds lines.
_MAX_ROWS = 200
_BAR = 40
_WIDEST_NAME = 80
_LEAST_NAME = 16
# Between columns, and the least of one that is cut.
_GAP = 2
_LEAST_CELL = 8
# A number and its unit, or the next number.
_UNIT: Final = re.compile(r"(\d[^\s,]*) (?=\d|[kMGT]?B\b|[mu]?s\b)")
# A path, a URL, or a digest.
_BREAKABLE: Final = re.compile("/.*/|[0-9a-f]{16}")
# Of a line that several texts make up, each of which is cut by itself.
_LONGEST_LINE = 4 * MAX_CHARACTERS


def show_sheet(sheet: Sheet, *, file: TextIO | None = None) -> None:
    """Write a sheet."""
    from aotc.report.sheet import Screen

    shown = (_rendered(part, one_line=isinstance(sheet, Screen)) for part in sheet)
    show([part for part in shown if part is not None], file=file)


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
            text.highlight_regex(r"^error:", f"bold {_COLOURS['bad']}")
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


def _rendered(part: Part, *, one_line: bool) -> RenderableType | None:
    """A part of a sheet, None where there is nothing in it."""
    from aotc.report.sheet import Bars, Facts, Heading, Lines, Table

    match part:
        case Heading():
            return _heading(part, one_line=one_line)
        case Facts():
            return _facts(part, one_line=one_line)
        case Table():
            return _table(part, one_line=one_line)
        case Bars():
            return _Histogram(part)
        case Lines():
            return listing(part.lines)
    return prose(part.text)


def _heading(part: Heading, *, one_line: bool) -> RenderableType:
    """A line; where it is broken the rest is indented, where it is cut the status is cut last."""
    from rich.text import Text

    line = _cell(part.text, style="bold")
    style = f"bold {_COLOURS.get(part.mood, '')}".strip()
    said = Text(f"  {printable(part.status)}" if part.status else "", style=style)
    return _Cut(line, said) if one_line else _Hanging(line.append_text(said))


def _facts(part: Facts, *, one_line: bool) -> RenderableType | None:
    from rich.console import Group
    from rich.table import Table

    rows = [row for row in part.rows if row[1]]
    if one_line:
        cells = [[_cell(label, "  ", style="dim"), _cell(text)] for label, text in rows]
        return _Columns([], cells, one_line=True) if rows else None
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(_cell(label, "  "), _cell(text))
    titled = Group(_cell(part.title, style="bold"), table) if part.title else table
    return titled if rows else None


def _table(part: Table, *, one_line: bool) -> RenderableType | None:
    end = len(part.columns) + 1 - part.extra
    heads, rows = part.filled([[*row[:end], *[""] * part.extra] for row in _in_groups(part)])
    titles = [head.removeprefix("#") for head in heads[1:]]
    return section(part.title, titles, rows, one_line=one_line) if rows else None


def _in_groups(part: Table) -> Iterator[Sequence[Cell]]:
    """The rows of a table, of each group as many as a terminal shows."""
    found = groupby(part.rows, lambda row: row[0]) if part.grouped else ((None, part.rows),)
    for _, group in found:
        rows, limit = list(group), part.limit or _MAX_ROWS
        if (left := len(rows) - limit) > 0:
            named = (rows[0][0], f"and {left} more")[not part.grouped :]
            rows[limit:] = [(*named, *[""] * (len(rows[0]) - len(named)))]
        yield from ([("", *row[1:]) if n and part.grouped else row for n, row in enumerate(rows)])


def section(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    one_line: bool = False,
) -> RenderableType:
    """A titled table; the title stands in the first column's head."""
    # A name is not broken, and would take the room of the others.
    widest = MAX_CHARACTERS if one_line else _WIDEST_NAME
    heads = [_cell(head, style="bold") for head in (title, *columns)]
    cells = [
        [_cell(first, "  ", limit=widest), *(_cell(cell) for cell in others)]
        for first, *others in rows
    ]
    return _Columns(heads, cells, one_line=one_line)


def show_names(items: Mapping[str, str]) -> None:
    """Write names to standard output, each with what it is; a line each where nobody watches."""
    if sys.stdout.isatty():
        rows = [[_cell(name), _cell(text)] for name, text in items.items()]
        show([_Columns([], rows, one_line=False)])
    else:
        width = max(map(len, items))
        write_lines(f"{name:<{width}}  {text}".rstrip() for name, text in items.items())


class _Histogram:
    """Numbers with a bar each, in the room that is left; the last text of a row stands out."""

    def __init__(self, part: Bars) -> None:
        self.part = part

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from rich.bar import Bar
        from rich.table import Table

        heads = [_cell(head) for head in (self.part.title, *self.part.columns)]
        rows = [
            (_cell(name, "  "), _cell(str(number)), _cell(""), _cell(marked, style="bold"))
            for name, number, marked in self.part.rows
        ]
        taken = sum(map(_natural, zip(heads, *rows, strict=True))) + 3 * _GAP
        width = max(min(_BAR, options.max_width - taken), _LEAST_CELL)
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
        for index, head in enumerate(heads):
            table.add_column(head, justify="right" if index == 1 else "left", no_wrap=True)
        largest = max(number for _, number, _ in self.part.rows)
        for cells, (_, number, _) in zip(rows, self.part.rows, strict=True):
            table.add_row(*cells[:2], Bar(largest, 0, number, width=width), cells[3])
        yield table


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

    if mood := getattr(text, "mood", ""):
        style = f"{style} {_COLOURS[mood]}".strip()
    lines = (text,) if isinstance(text, str) else text
    shown = [f"{indent}{printable(line, limit)}" for line in lines[:_MAX_ROWS]]
    if len(lines) > _MAX_ROWS:
        shown.append(f"{indent}and {len(lines) - _MAX_ROWS} more")
    made = Text("\n".join(shown), style=style)
    start = 0
    for line, said in zip(lines, shown, strict=False):
        if lines is text and (mood := getattr(line, "mood", "")):
            made.stylize(_COLOURS[mood], start, start + len(said))
        start += len(said) + 1
    return made


class _Columns:
    """A table that breaks no word: columns are as wide as their words, and share what is left.

    Where they have no room beside one another, each row is a block of its own, with a line for each
    cell.  In `one_line` the cells are cut instead.  Heads may be none.
    """

    def __init__(
        self, heads: Sequence[Text], rows: Sequence[Sequence[Text]], *, one_line: bool
    ) -> None:
        self.heads, self.rows, self.one_line = heads, rows, one_line

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        heads = list(self.heads)
        room = options.max_width - _GAP * (len(self.rows[0]) - 1)
        columns = list(zip(*([heads] if heads else []), *self.rows, strict=True))
        natural = list(map(_natural, columns))
        widths = _widths(columns, room, cut=self.one_line)
        names = _natural([row[0] for row in self.rows])
        if heads and heads[0].cell_len > names and not self.one_line and widths != natural:
            # The title stands above, and leaves its column to the names.
            yield heads[0]
            heads[0] = Text()
            columns = list(zip(heads, *self.rows, strict=True))
            widths = _widths(columns, room, cut=False)
        if widths is None:
            yield from self._blocks(heads)
            return
        table = Table(
            box=None,
            padding=(0, _GAP, 0, 0),
            pad_edge=False,
            show_header=any(head.plain for head in heads) or heads == list(self.heads) != [],
        )
        for index, width in enumerate(widths):
            head = heads[index] if heads else ""
            table.add_column(head, width=width, no_wrap=self.one_line, overflow="fold")
        for row in self.rows:
            cells = [_cut(cell, width) for cell, width in zip(row, widths, strict=True)]
            table.add_row(*(cells if self.one_line else row))
        yield table

    def _blocks(self, heads: Sequence[Text]) -> Iterator[RenderableType]:
        from rich.padding import Padding
        from rich.text import Text

        for name, *cells in self.rows:
            labels = [f"{head.plain}: " if head.plain else "" for head in heads[1:]]
            shown = [
                Text(label, style="dim").append_text(cell)
                for label, cell in zip(labels or [""] * len(cells), cells, strict=True)
                if cell.plain
            ]
            line = name.copy()
            while len(shown) > 1 and not any(labels):
                # Such as a status, which says nothing in a line of its own.
                line.append("  ").append_text(shown.pop(0))
            yield line
            yield from (Padding(each, (0, 0, 0, 4)) for each in shown)


def _natural(column: Sequence[Text]) -> int:
    """Cells that the longest line of a column takes."""
    return max(line.cell_len for cell in column for line in cell.split(allow_blank=True))


def _widths(columns: Sequence[Sequence[Text]], room: int, *, cut: bool) -> list[int] | None:
    """The width of each column; None where there is no room for the longest word of each."""
    natural = list(map(_natural, columns))
    if sum(natural) <= room:
        return natural
    least = [
        min(wide, _LEAST_CELL) if cut else min(wide, max(map(_longest_word, column)))
        for wide, column in zip(natural, columns, strict=True)
    ]
    if not cut and sum(least) > room:
        return None
    widths = least
    for _ in range(room - sum(widths)):
        # The narrowest grow first, so that short columns stay in one line.
        growing = [n for n, wide in enumerate(widths) if wide < natural[n]]
        widths[min(growing, key=lambda n: widths[n])] += 1
    return widths


def _longest_word(cell: Text) -> int:
    """Cells of the longest word, a number with its unit being one; a path may be broken."""
    from rich.cells import cell_len

    words = _UNIT.sub("\\1_", cell.plain).split()
    indent = len(cell.plain) - len(cell.plain.lstrip())
    return indent + max(
        (min(cell_len(each), _LEAST_NAME if _BREAKABLE.search(each) else 10**6) for each in words),
        default=0,
    )


def _cut(cell: Text, width: int) -> Text:
    """A line of at most `width` cells, cut between words where that leaves most of it."""
    if cell.cell_len <= width:
        return cell
    shown = cell.copy()
    shown.truncate(max(width - 1, 0))
    before, _, word = shown.plain.rpartition(" ")
    is_whole = not word or cell.plain.startswith(" ", len(shown.plain))
    if not is_whole and 2 * len(before) > width:
        shown.truncate(len(before))
    shown.rstrip()
    return shown.append("…")


class _Cut:
    """A name and a status in one line; where it is too wide, the name is cut first."""

    def __init__(self, name: Text, status: Text) -> None:
        self.name, self.status = name, status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        name, width = self.name.copy(), options.max_width
        name.truncate(max(width - self.status.cell_len, _LEAST_NAME), overflow="ellipsis")
        shown = name.append_text(self.status)
        yield _cut(shown, width)


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


# Standard output and standard error as they may be: full, closed at the other end, or gone.


STDOUT = "standard output"
_SIZES: Final = ("COLUMNS", "LINES")


def prepare() -> None:
    """Make standard streams ready for any text; what is written to a closed one is dropped."""
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
