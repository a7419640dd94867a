"""What a command writes besides tables: JSON, files, refusals, the log, questions."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from aotc.base.errors import AotcError, missing_package
from aotc.base.files.failures import cannot_write
from aotc.base.files.replacing import check_output
from aotc.base.files.writing import is_written_through, write_text
from aotc.base.text import printable
from aotc.cli.terminal import answering, may_be_lost, section, silence, write_lines
from aotc.spec.json import document, to_json
from aotc.spec.versions import VERSION, stated_id

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.spec.command_reports import ErrorReport, VersionReport


# The one JSON document that a command prints with `--json`.


def document_text(answer: Any) -> str:
    """A record as text, every field in it, in printable ASCII."""
    return document(to_json(answer))


def write_document(answer: Any) -> None:
    """Write a record to standard output, every field in it, in ASCII."""
    write_output(document_text(answer))


# Files that a command writes in addition to its answer.


def refuse_existing(paths: Iterable[Path], force: bool) -> None:
    """Raise AOTC-I017 where one of `paths` exists, unless `force`, and I026 where it may not be.

    A device or a pipe, such as /dev/stdout, is given on purpose: it is written to, not replaced.
    """
    for path in paths:
        try:
            through = is_written_through(path)
        except OSError as error:
            raise cannot_write(error, "cannot write the file", str(path)) from None
        check_output(path, force=force or through, writes_through=True)


def refuse_overwriting(
    outputs: Sequence[tuple[str, Path]], inputs: Iterable[Path | None] = ()
) -> None:
    """Raise AOTC-I027 where an output is, or lies in, one of `inputs` or another output.

    `outputs` are options and their files.  `-`, devices and pipes, which nothing is lost in, are
    left out, and so are inputs that are None, `-`, or an id of a store's entry.
    """
    files = [(option, path) for option, path in outputs if not _takes_all(path)]
    given = [path for path in inputs if path is not None and not _takes_all(path)]
    for index, (option, path) in enumerate(files):
        for other in given:
            if stated_id(other) is None and _is_within(path, other):
                raise _overwriting(option, path, "an input", str(other))
        for second, (name, other) in enumerate(files):
            if second != index and _is_within(path, other):
                raise _overwriting(option, path, "another output", f"{name} {other}")


def _takes_all(path: Path) -> bool:
    if str(path) == "-":
        return True
    try:
        return not path.is_dir() and is_written_through(path)
    except OSError:
        return False


def _is_within(path: Path, other: Path) -> bool:
    place, around = Path(os.path.realpath(path)), Path(os.path.realpath(other))
    try:
        # Also under another name, as links and the case of letters give.
        return place.is_relative_to(around) or place.samefile(around)
    except OSError:
        return False


def _overwriting(option: str, path: Path, what: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I027",
        f"{option} would overwrite {what}, or write into it",
        where=f"{option} {path}",
        found=found,
        fix="Name another file.",
    )


def write_page(text: str, html: str) -> None:
    """Write a page to the file of --html, in place of one that exists; `-` is standard output."""
    if html == DASH:
        write_output(text)
    else:
        write_text(Path(html), text)


def write_output(text: str) -> None:
    """Write text to standard output; raises AOTC-I018 (full disk) and I026."""
    with answering(sys.stdout):
        sys.stdout.write(text)


# `-` as a model: what comes by standard input, kept in a file of its own while it is read.


DASH: Final = "-"
STDIN: Final = "standard input"
# Of a protobuf message, and so of a file of ONNX.
_MAX_BYTES: Final = 2**31 - 1
_BLOCK: Final = 1 << 20
# The model refers to other files: missing, too short, outside its folder, or a link.
_OTHER_FILES: Final = frozenset({"AOTC-I003", "AOTC-I004", "AOTC-I005", "AOTC-I006"})


@contextmanager
def model_given(model: Path) -> Iterator[Path]:
    """The model's path; for `-` that of a file with what standard input holds.

    Raises AOTC-I053 if that is nothing, a terminal, or too large, and I018 if it cannot be kept;
    I054 in place of an error on files that the model refers to.
    """
    if str(model) != DASH:
        yield model
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise AotcError("AOTC-I053", "there is no model on standard input", where=STDIN)
    from aotc.base.files.work_folders import temporary_folder

    with temporary_folder("stdin") as folder:
        kept = folder / "model.onnx"
        _keep(kept)
        try:
            yield kept
        except AotcError as error:
            raise _of_standard_input(error, folder) from None


def _keep(path: Path) -> None:
    total = 0
    try:
        with path.open("wb") as file:
            while block := sys.stdin.buffer.read(_BLOCK):
                total += len(block)
                if total > _MAX_BYTES:
                    raise AotcError(
                        "AOTC-I053",
                        "a protobuf message cannot exceed 2 GiB",
                        where=STDIN,
                        found=f"more than {_MAX_BYTES} bytes",
                    )
                file.write(block)
    except OSError as error:
        raise cannot_write(error, "cannot keep the model", str(path.parent)) from None
    if not total:
        raise AotcError("AOTC-I053", "standard input is empty", where=STDIN)


def _of_standard_input(error: AotcError, folder: Path) -> AotcError:
    """The error without the path of a file that nobody gave."""
    if error.code in _OTHER_FILES:
        return AotcError(
            "AOTC-I054",
            "the model has external data, which standard input cannot provide",
            where=STDIN,
            found=error.what,
        )
    for each in (error, *error.also):
        for path in (folder / "model.onnx", Path("model.onnx")):
            each.where = each.where.replace(str(path), STDIN)
    return error


# Commands that need more than the base install say which extra to install.


@contextmanager
def needs(command: str, extra: str = "cpu", *, loads: bool = False) -> Iterator[None]:
    """Around imports: a package of an extra that is missing becomes AOTC-I019.

    A command that only `loads` and runs needs no more than ONNX Runtime.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error, f"'aotc {command}'", extra, only_loads=loads) from None


# Questions on a terminal: what a command needs and was not given.


# Listed, and how far below the folder they are looked for.
_MAX_MODELS: Final = 20
_MAX_DEPTH: Final = 3


def chosen_model(folder: Path) -> Path:
    """The model that the user names or chooses among those in `folder`.

    Raises AOTC-I070 if there is no terminal to ask on, or no answer.
    """
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise AotcError("AOTC-I070", "no model is given, and there is no terminal to ask for one")
    found = sorted(_models(folder))[:_MAX_MODELS]
    offer = f"a number, or a path [{found[0]}]" if found else "its path"
    rows = (f"{number:>3}  {path}" for number, path in enumerate(found, 1))
    write_lines([*rows, f"Model ({offer}):"], file=sys.stderr)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    stated = answer.strip()
    if stated.isascii() and stated.isdigit() and 0 < int(stated) <= len(found):
        return found[int(stated) - 1]
    if stated:
        return Path(stated)
    # An empty line takes the first one; the end of the input takes nothing.
    if answer and found:
        return found[0]
    raise AotcError("AOTC-I070", "no model was named")


def _models(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        depth = len(here.relative_to(folder).parts)
        # An artifact holds models, which are not the user's.
        folders[:] = [
            name
            for name in folders
            if depth < _MAX_DEPTH and not name.startswith(".") and not name.endswith(".aotc")
        ]
        yield from (here / name for name in files if name.endswith(".onnx"))


# The file of `--log-file`: what a call did and when, one line each, with the time in UTC.


_LONGEST = 4000


class CallLog:
    """Lines are added to a file that exists, so that several calls share one."""

    def __init__(self, path: Path) -> None:
        """Raises AOTC-I018 or I026 where it cannot be written, I055 where it is standard output."""
        self._path = path
        self._lock = threading.Lock()
        if str(path) == "-":
            raise _mixed(path)
        try:
            self._file: TextIO | None = path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise cannot_write(error, "cannot write the log", str(path)) from None
        if _is_standard_output(self._file):
            self._file.close()
            raise _mixed(path)

    def write(self, text: str) -> None:
        """Add a line, at once; of a file that can no longer be written, the first loss is told."""
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        line = f"{moment}.{int(now % 1 * 1000):03}Z  {printable(text, _LONGEST)}\n"
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                silence(self._file)
                self._file = None
                with may_be_lost(sys.stderr):
                    what = f"warning: the log {self._path} is incomplete: {error.strerror}"
                    write_lines((what,), file=sys.stderr)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                with suppress(OSError):
                    self._file.close()
                self._file = None


def _mixed(path: Path) -> AotcError:
    return AotcError(
        "AOTC-I055", "the log would be mixed with the answer", where=f"--log-file {path}"
    )


def _is_standard_output(file: TextIO) -> bool:
    try:
        log, answer = os.fstat(file.fileno()), os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return False
    return os.path.samestat(log, answer) and not os.path.samestat(log, os.stat(os.devnull))  # noqa: PTH116


# How a refusal is reported: in plain text on standard error, or as a JSON document.


_WIDEST = 120
_WIDEST_NAME = 36
# Of a table; `--json` has every row.
_MAX_GROUPS = 12
# Of further errors; likewise.
_MAX_OTHERS = 50
_LABELS = ("what", "where", "place", "expected", "found", "fix")
# What a label is called where the field's name would not be understood.
_LABEL_WORDS = {"place": "at"}
# How an expected usage line begins; it has a label of its own.
_USAGE: Final = "usage: "


def error_lines(error: AotcError, width: int | None = None) -> list[str]:
    """The error and the further ones in `also`, as lines; of too many the first.

    Lines of foreign text that are longer than `width`, a terminal's, go on below their beginning:
    the terminal itself would let them go on where our own lines begin.
    """
    from aotc.report.sheet import with_fixtures_in_words

    lines = [f"error: {error.code} {error.title}"]
    for label in _LABELS:
        said = getattr(error, label)
        if text := with_fixtures_in_words("" if said is None else str(said).strip()):
            if label == "expected" and text.startswith(_USAGE):
                label, text = "usage", text.removeprefix(_USAGE)
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
    found = {
        tuple(tuple(row.items()) for row in refused.rows): refused for refused in error.every()
    }
    shown = []
    for rows in found:
        if rows:
            first, *others = (name for name, _ in rows[0])
            shown.append(section(first, others, _grouped(rows)))
    return shown


def _grouped(rows: tuple[tuple[tuple[str, str], ...], ...]) -> list[list[str]]:
    """One row for all that differ in the first column alone; the largest groups come first."""
    from aotc.report.sheet import provider

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
    from aotc.spec.command_reports import ErrorReport
    from aotc.spec.reports import Refusal

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


# The versions of what builds and runs here, by what is installed; none of it is imported.


def version_report() -> VersionReport:
    """aotc, Python, and each installed distribution that decides what is built and computed."""
    from importlib import metadata

    from aotc.spec.command_reports import VersionReport
    from aotc.spec.providers import KNOWN_PROVIDERS, RUNTIME_WHEELS

    names = (
        "onnx",
        *(wheel.distribution for wheel in RUNTIME_WHEELS),
        *(name for known in KNOWN_PROVIDERS for name in known.distributions),
    )
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    python = ".".join(map(str, sys.version_info[:3]))
    return VersionReport(aotc=VERSION, python=python, packages=found)
