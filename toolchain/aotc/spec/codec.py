"""Wire formats: one class of records is the parser, the writer and the schema of a format.

`decode` reads JSON-like data strictly into a record and reports all problems, each with its path
(`variants[0].inputs[2].shape`); `encode` writes the record as such data.  The type of a field is
`str`, `int`, `float`, `bool`, a `Literal`, another record, `tuple[T, ...]`, `Mapping[str, T]`,
`T | None` or `Json`.  `Annotated` adds a description, `Bounds`, a `Pattern` and `Aliases` to it.  A
class with a method `from_json` reads itself, and one with `to_json` writes itself.
"""

from __future__ import annotations

import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from aotc.base.records import MISSING, Field, fields, is_record, record, replace
from aotc.base.text import hint
from aotc.spec.versions import is_newer

Json = Any
T = TypeVar("T")

# A hostile document may have a million problems.
MAX_PROBLEMS = 100
# The code of a document whose schema has a later major version.
NEWER = "AOTC-I046"


@record(kw_only=False)
class Bounds:
    """Inclusive bounds of a number, or of the number of characters or items."""

    minimum: float | None = None
    maximum: float | None = None


@record(kw_only=False)
class Pattern:
    """A regular expression that the whole string must match."""

    regex: str


@record(kw_only=False)
class Aliases:
    """Other words for values of a `Literal`, each with the one that it is read as."""

    words: tuple[tuple[str, str], ...]


@record(kw_only=False)
class Problem:
    """One problem of a document: its path, a description, and a reason code if it has its own.

    `line` and `column` count from 1, and are 0 where they are not known.
    """

    path: str
    what: str
    code: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.path or '(top)'}: {self.what}"


class ParseError(ValueError):
    """All problems of a document, in `problems`."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in problems))


class _TooManyProblems(Exception):
    """There are more than `MAX_PROBLEMS`; the rest of the document is not read."""


class _Problems(list[Problem]):
    """Up to `MAX_PROBLEMS`; one more raises `_TooManyProblems`."""

    def append(self, problem: Problem) -> None:
        if len(self) == MAX_PROBLEMS:
            super().append(Problem("", f"there are more than these {MAX_PROBLEMS} problems"))
            raise _TooManyProblems
        super().append(problem)

    def add_below(self, path: str, problems: Iterable[Problem]) -> None:
        """Add problems whose paths are relative to `path`."""
        for each in problems:
            dot = "." if path and each.path and not each.path.startswith("[") else ""
            self.append(replace(each, path=f"{path}{dot}{each.path}"))


@cache
def field_types(cls: type) -> dict[str, Any]:
    """The types of a class's fields by their names, with what `Annotated` adds to them."""
    return {field.name: field_type(field) for field in fields(cls)}


def field_type(field: Field) -> Any:
    """The type of a field, with what `Annotated` adds to it."""
    if not isinstance(field.type, str):
        return field.type
    # `typing.get_type_hints` would evaluate all fields of the class, in twice the time for each.
    return eval(field.type, vars(sys.modules[field.module]))  # noqa: S307 - our own source


@cache
def fields_by_name(cls: Any) -> dict[str, Field]:
    """A record's fields by their names, which are those on the wire."""
    return {field.name: field for field in fields(cls)}


def decode(cls: type[T], data: Json, *, path: str = "", allow_unknown: bool = False) -> T:
    """`data` as a record of class `cls`; `path` is the path of `data` in its document.

    Unknown fields are problems, unless `allow_unknown`.  Raises `ParseError` with all problems, up
    to `MAX_PROBLEMS`; if the document's schema has a later major version than the record's, with
    that problem alone, of code `NEWER`.
    """
    _require_no_newer(cls, data)
    problems = _Problems()
    try:
        value = _reader(cls)(data, path, problems, allow_unknown)
    except _TooManyProblems:
        raise ParseError(problems) from None
    if problems:
        raise ParseError(problems)
    return typing.cast(T, value)


def _require_no_newer(cls: type, data: Json) -> None:
    if not is_record(cls) or not isinstance(data, dict) or "schema" not in fields_by_name(cls):
        return
    kind = field_type(fields_by_name(cls)["schema"])
    while get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    found = data.get("schema")
    known = get_args(kind) if get_origin(kind) is Literal else ()
    if known and found not in known and all(is_newer(found, each) for each in known):
        what = f"this was made by a newer aotc: {found}, and this release reads {known[0]}"
        raise ParseError([Problem("schema", what, NEWER)])


# Takes data, its path, the problems found so far, to which it adds, and whether to allow unknown
# fields; returns the value of its type.
_Reader = Callable[[Json, str, _Problems, bool], Any]


def _reader(kind: Any) -> _Reader:
    """The reader of a type; those of a record's fields are made when they are first needed."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _annotated_reader(_reader(arguments[0]), arguments[1:])
    if kind is Any:
        return lambda data, path, problems, lenient: data
    if origin in (Union, types.UnionType):
        return _union_reader(arguments)
    if origin is Literal:
        return _literal_reader(arguments)
    if origin is tuple:
        return _list_reader(_reader(arguments[0]))
    if origin in (Mapping, dict):
        return _mapping_reader(_reader(arguments[1]))
    if hasattr(kind, "from_json"):
        return _own_reader(kind)
    return _record_reader(kind) if is_record(kind) else _scalar_reader(kind)


def _annotated_reader(inner: _Reader, notes: tuple[Any, ...]) -> _Reader:
    bounds = [note for note in notes if isinstance(note, Bounds)]
    patterns = [re.compile(note.regex) for note in notes if isinstance(note, Pattern)]
    aliases = dict(pair for note in notes if isinstance(note, Aliases) for pair in note.words)
    if not bounds and not patterns and not aliases:
        return inner

    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        before = len(problems)
        data = aliases.get(data, data) if isinstance(data, str) else data
        value = inner(data, path, problems, lenient)
        if len(problems) > before:
            return value
        for note in bounds if value is not None else ():
            size = value if isinstance(value, int | float) else len(value)
            if note.minimum is not None and size < note.minimum:
                problems.append(Problem(path, f"{size} is less than {note.minimum:g}"))
            if note.maximum is not None and size > note.maximum:
                problems.append(Problem(path, f"{size} is more than {note.maximum:g}"))
        for pattern in patterns if isinstance(value, str) else ():
            if not pattern.fullmatch(value):
                text = repr(value)
                text = text if len(text) <= 100 else f"{text[:97]}..."
                problems.append(Problem(path, f"{text} does not match {pattern.pattern}"))
        return value

    return read


def _union_reader(choices: tuple[Any, ...]) -> _Reader:
    optional = types.NoneType in choices
    choices = tuple(choice for choice in choices if choice is not types.NoneType)
    readers = [_reader(choice) for choice in choices]
    wanted = " or ".join(
        " or ".join(map(repr, get_args(choice)))
        if get_origin(choice) is Literal
        else getattr(choice, "__name__", str(choice))
        for choice in choices
    )

    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if data is None and optional:
            return None
        if len(readers) == 1:
            return readers[0](data, path, problems, lenient)
        for reader in readers:
            trial = _Problems()
            try:
                value = reader(data, path, trial, lenient)
            except _TooManyProblems:
                continue
            if not trial:
                return value
        problems.append(Problem(path, f"expected {wanted}, found {_described(data)}"))
        return None

    return read


def _literal_reader(choices: tuple[Any, ...]) -> _Reader:
    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if data not in choices or isinstance(data, bool):
            wanted = ", ".join(str(choice) for choice in choices)
            near = hint(data, choices, len(problems)).partition("; known: ")[0]
            problems.append(Problem(path, f"{data!r:.100} is none of: {wanted}{near}"))
        return data

    return read


def _list_reader(item: _Reader) -> _Reader:
    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if not isinstance(data, list):
            problems.append(Problem(path, f"expected a list, found {_described(data)}"))
            return ()
        return tuple([item(v, f"{path}[{i}]", problems, lenient) for i, v in enumerate(data)])

    return read


def _mapping_reader(item: _Reader) -> _Reader:
    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if not isinstance(data, dict):
            problems.append(Problem(path, f"expected a mapping, found {_described(data)}"))
            return {}
        return {
            str(k): item(v, f"{path}.{k}" if path else str(k), problems, lenient)
            for k, v in data.items()
        }

    return read


def _own_reader(cls: Any) -> _Reader:
    """The reader of a class that reads itself."""

    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if isinstance(data, cls):
            return _record_reader(cls)(data, path, problems, lenient)
        try:
            return cls.from_json(data)
        except ParseError as error:
            problems.add_below(path, error.problems)
            return None

    return read


def _scalar_reader(kind: Any) -> _Reader:
    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if kind is float and isinstance(data, int) and not isinstance(data, bool):
            data = float(data)
        if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
            problems.append(Problem(path, f"expected {_kind_name(kind)}, found {_described(data)}"))
            return None
        if isinstance(data, float) and not math.isfinite(data):
            problems.append(Problem(path, f"{data} is not a finite number"))
        return data

    return read


def _record_reader(cls: Any) -> _Reader:
    has_problems = callable(getattr(cls, "problems", None))

    def read(data: Json, path: str, problems: _Problems, lenient: bool) -> Any:
        if not isinstance(data, dict):
            problems.append(Problem(path, f"expected a mapping, found {_described(data)}"))
            return None
        fields, readers = fields_by_name(cls), _field_readers(cls)
        before = len(problems)
        values: dict[str, Any] = {}
        for key, value in data.items():
            where = f"{path}.{key}" if path else str(key)
            if (field := fields.get(key)) is not None:
                if (reader := readers.get(key)) is None:
                    reader = readers[key] = _reader(field_type(field))
                values[field.name] = reader(value, where, problems, lenient)
            elif not lenient:
                near = hint(key, tuple(fields), len(problems))
                problems.append(Problem(where, f"unknown field{near}"))
        for name, field in fields.items():
            if name not in data and not field.is_optional:
                problems.append(Problem(f"{path}.{name}" if path else name, "missing"))
        if len(problems) > before:
            return None
        made = cls(**values)
        if has_problems:
            problems.add_below(path, made.problems())
        return made

    return read


@cache
def _field_readers(cls: type) -> dict[str, _Reader]:
    """The readers of a class's fields that were needed so far, by their names."""
    return {}


def encode(value: Any, *, full: bool = False) -> Json:
    """A record as JSON-like data, without fields that have their default unless `full`."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_record(value):
        cls: Any = type(value)
        return {
            field.name: encode(getattr(value, field.name), full=full)
            for field in fields(cls)
            if full or not _has_default(field, getattr(value, field.name))
        }
    if isinstance(value, Mapping):
        return {str(key): encode(item, full=full) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item, full=full) for item in value]
    return value


def _has_default(field: Field, value: Any) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and bool(value == field.default)


def _kind_name(kind: Any) -> str:
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    return names.get(kind, str(kind))


def _described(data: Json) -> str:
    if data is None:
        return "nothing"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, dict):
        return "a mapping"
    if isinstance(data, list):
        return "a list"
    text = repr(data)
    return text if len(text) <= 40 else text[:37] + "..."
