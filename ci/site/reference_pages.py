"""The pages that are made from the code: commands from their help, Python from its docstrings."""

from __future__ import annotations

import contextlib
import io
import os
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import schemas

import aotc
from aotc.base.records import fields, is_record
from aotc.cli import main as cli
from aotc.cli.commands import COMMANDS
from aotc.cli.grammar import Group, built

# What `import aotc` offers, in the order in which it is shown.
_NAMES: Final = tuple(name for name in aotc.__all__ if name != "__version__")
_FIRST: Final = ("build", "verify", "inspect", "load")
FUNCTIONS: Final = (
    *_FIRST,
    *sorted(name for name in _NAMES if name.islower() and name not in _FIRST),
)
RECORDS: Final = tuple(getattr(aotc, name) for name in _NAMES if is_record(getattr(aotc, name)))
CLASSES: Final = tuple(
    name
    for name in _NAMES
    if not name.islower() and getattr(aotc, name) not in (*RECORDS, aotc.AotcError)
)
# Those that functions return; the records in them follow.
REPORTS: Final = tuple(each for each in RECORDS if each.__name__.endswith("Report"))
_COLUMNS: Final = "100"


def write(folder: Path) -> None:
    """Write every page into `folder`."""
    folder.mkdir(parents=True)
    pages = {"commands": commands, "python": python, "reports": records, "schemas": json_schemas}
    for name, page in pages.items():
        (folder / f"{name}.md").write_text(page(), "utf-8")


def commands() -> str:
    """What `aotc COMMAND --help` prints, of every command."""
    parts = ["# Commands", "What `aotc --help` and `aotc COMMAND --help` print.", _shown(())]
    for words in _every_command():
        parts += [f"## aotc {' '.join(words)}", _shown(words)]
    return "\n\n".join(parts) + "\n"


def _every_command() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        yield (name,)
        command = built(COMMANDS.load(name))
        if isinstance(command, Group):
            for each in command.commands:
                yield name, each


def _shown(words: tuple[str, ...]) -> str:
    os.environ["COLUMNS"] = _COLUMNS
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = cli.main([*words, "--help"])
    if status:
        raise RuntimeError(f"aotc {' '.join(words)} --help ended with {status}")
    return f"```text\n{printed.getvalue().rstrip()}\n```"


def python() -> str:
    """The functions and classes of `aotc`, for autodoc; records are on a page of their own."""
    parts = [
        "# Python reference",
        "Made from the docstrings. The [guide](../docs/guides/python.md) has examples, "
        "[reports](reports.md) the records that these functions return. Everything that is not in "
        "`aotc.__all__` is private, and may change in any release.",
        "## Functions",
        *(_directive(f"autofunction:: aotc.{name}") for name in FUNCTIONS),
        "## Classes",
        *(_directive(f"autoclass:: aotc.{name}", ":members:") for name in CLASSES),
        "## Errors",
        _directive("autoexception:: aotc.AotcError", ":members:"),
    ]
    return "\n\n".join(parts) + "\n"


def _directive(name: str, *options: str) -> str:
    lines = "\n".join("   " + option for option in options)
    return f"```{{eval-rst}}\n.. {name}\n{lines}\n```"


def records() -> str:
    """The reports, and the records in them: every field with its type and what it says."""
    parts = [
        "# Reports",
        "Frozen records, which `--json` prints as documents of the same fields; see "
        "[schemas](schemas.md). `aotc.to_json` makes such data of them.",
    ]
    parts += [_record(cls) for cls in _reachable()]
    return "\n\n".join(parts) + "\n"


def _reachable() -> list[type]:
    found: list[type] = []
    pending: list[Any] = [*REPORTS, *RECORDS]
    while pending:
        kind = pending.pop(0)
        if isinstance(kind, type) and is_record(kind):
            if kind not in found:
                found.append(kind)
                pending += typing.get_type_hints(kind).values()
        else:
            pending += [each for each in get_args(kind) if get_origin(kind) is not Literal]
    return found


def _record(cls: type) -> str:
    lines, place = [f".. py:class:: {_name(cls)}"], f"{cls.__module__}.{cls.__qualname__}"
    # Signatures of functions name a public one by its place.
    lines += [f"   :canonical: {place}"] if _name(cls) != place else []
    lines += [""]
    lines += [f"   {_plain(line.strip())}" for line in (cls.__doc__ or "").strip().splitlines()]
    hints = typing.get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        kind, note = _annotated(hints[each.name])
        # Not in the index: a field called `bytes` would be taken for the type of others.
        lines += ["", f"   .. py:attribute:: {each.name}", f"      :type: {_type(kind)}"]
        lines += ["      :no-index:", ""]
        lines += [f"      {_plain(note)}"] if note else []
    body = "\n".join(lines)
    return f"## {cls.__name__}\n\n```{{eval-rst}}\n{body}\n```"


def _name(cls: type) -> str:
    """The name by which users have a record; of one that is not public, where it is."""
    public = cls in RECORDS
    return f"aotc.{cls.__name__}" if public else f"{cls.__module__}.{cls.__qualname__}"


def _plain(text: str) -> str:
    """Words of ours as reStructuredText, where bars and stars would mean something."""
    return text.replace("|", "\\|").replace("*", "\\*")


def _annotated(hint: Any) -> tuple[Any, str]:
    """The type of a field, and what its annotation says of it."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    kind, *notes = get_args(hint)
    return kind, " ".join(note for note in notes if isinstance(note, str))


def _type(kind: Any) -> str:
    """A type as it is written, records by their full names so that they are linked."""
    kind, _ = _annotated(kind)
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin in (typing.Union, UnionType):
        return " | ".join(_type(each) for each in arguments)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if arguments:
        inner = ", ".join("..." if each is ... else _type(each) for each in arguments)
        return f"{_type(origin)}[{inner}]"
    if kind is NoneType:
        return "None"
    if isinstance(kind, type) and is_record(kind):
        return _name(kind)
    return getattr(kind, "__name__", str(kind))


def json_schemas() -> str:
    """The JSON Schemas of the wire formats, each to be taken along."""
    rows = ["| Schema | Of |", "|---|---|"]
    for folder, name, cls in schemas.SCHEMAS:
        says = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")
        rows.append(f"| [{name}](../{folder}/{name}.schema.json) | {says} |")
    return (
        "\n\n".join(
            [
                "# JSON Schemas",
                "Of what is read and written, made from the records. In the wheel they lie in "
                "`aotc/_manifests` and `aotc/_profiles`.",
                "\n".join(rows),
            ]
        )
        + "\n"
    )
