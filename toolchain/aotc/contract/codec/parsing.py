"""One class of records is the parser, the writer and the schema of a wire format.

`decode` reads JSON-like data strictly into a record and reports every problem with its path
(`variants[0].inputs[2].shape`); `encode` writes it back.  Field types may be `str`, `int`,
`float`, `bool`, `Literal`, another record, `tuple[T, ...]`, `Mapping[str, T]`, `T | None` and
`Json`.  `Annotated` carries a field's text and its bounds.  A class with `from_json` reads itself.
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

from aotc.contract.codec.spelling import hint
from aotc.contract.versions import is_newer
from aotc.records import MISSING, Field, fields, is_record, record

Json = Any
T = TypeVar("T")

# Nobody mends more at a time, and a document may hold a million.
MAX_PROBLEMS = 100
NEWER = "AOTC-I046"


@record(kw_only=False)
class Bounds:
    """Inclusive bounds of a number, or of the number of items."""

    least: float | None = None
    most: float | None = None


@record(kw_only=False)
class Pattern:
    """A regular expression that the whole string must match."""

    regex: str


@record(kw_only=False)
class Problem:
    """One thing wrong in a document: where, and what."""

    path: str
    what: str
    code: str = ""
    """A reason code of its own, where it has one."""

    def __str__(self) -> str:
        return f"{self.path or '(top)'}: {self.what}"


class ParseError(ValueError):
    """Everything that is wrong in a document, not the first thing only."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in problems))


class _Enough(Exception):
    """So many problems are known that no more are looked for."""


class _Found(list[Problem]):
    """Problems, up to `MAX_PROBLEMS`; the next one ends the search."""

    def append(self, problem: Problem) -> None:
        if len(self) == MAX_PROBLEMS:
            super().append(Problem("", f"there are more than these {MAX_PROBLEMS} problems"))
            raise _Enough
        super().append(problem)

    def adopt(self, problems: Iterable[Problem], path: str) -> None:
        """Add problems of what lies at `path`, whose own paths begin there."""
        for each in problems:
            dot = "." if path and each.path and not each.path.startswith("[") else ""
            self.append(Problem(f"{path}{dot}{each.path}", each.what, each.code))


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """Field name to its type, annotations kept."""
    return {field.name: type_of(field) for field in fields(cls)}


def type_of(field: Field) -> Any:
    """The type of a field, annotations kept: what its class says, read where the class stands."""
    if not isinstance(field.type, str):
        return field.type
    # As `typing.get_type_hints` does, which reads the fields of a class all at once.
    return eval(field.type, vars(sys.modules[field.module]))  # noqa: S307 - our own source


@cache
def wire_fields(cls: Any) -> dict[str, Field]:
    """A record's fields by their names on the wire: its `WIRE_NAMES` say which differ."""
    renamed: Mapping[str, str] = getattr(cls, "WIRE_NAMES", {})
    return {renamed.get(field.name, field.name): field for field in fields(cls)}


def decode(cls: type[T], data: Json, *, path: str = "", allow_unknown: bool = False) -> T:
    """Read `data` as a record of class `cls`; raise `ParseError` with the problems found.

    They are all of them, up to `MAX_PROBLEMS`.  A document of a later major version of the record's
    schema has that one problem, of code `NEWER`.  An unknown field is a problem and names the
    nearest known one, unless `allow_unknown`.
    """
    _require_no_newer(cls, data)
    problems = _Found()
    try:
        value = _reader(cls)(data, path, problems, allow_unknown)
    except _Enough:
        raise ParseError(problems) from None
    if problems:
        raise ParseError(problems)
    return typing.cast(T, value)


def _require_no_newer(cls: type, data: Json) -> None:
    if not is_record(cls) or not isinstance(data, dict) or "schema" not in wire_fields(cls):
        return
    kind = type_of(wire_fields(cls)["schema"])
    while get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    found = data.get("schema")
    known = get_args(kind) if get_origin(kind) is Literal else ()
    if known and found not in known and all(is_newer(found, each) for each in known):
        what = f"this was made by a newer aotc: {found}, and this release reads {known[0]}"
        raise ParseError([Problem("schema", what, NEWER)])


# What reads data of one type at a path: it adds to the problems, and takes fields that are not
# known where the last argument says so.
_Reader = Callable[[Json, str, _Found, bool], Any]


def _reader(kind: Any) -> _Reader:
    """What reads data of a type; records are looked into when the first one is read."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _annotated_reader(_reader(arguments[0]), arguments[1:])
    if kind is Any:
        return lambda data, path, problems, loose: data
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
    if not bounds and not patterns:
        return inner

    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        before = len(problems)
        value = inner(data, path, problems, loose)
        if len(problems) > before:
            return value
        for note in bounds if value is not None else ():
            size = value if isinstance(value, int | float) else len(value)
            if note.least is not None and size < note.least:
                problems.append(Problem(path, f"{size} is less than {note.least:g}"))
            if note.most is not None and size > note.most:
                problems.append(Problem(path, f"{size} is more than {note.most:g}"))
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
    wanted = " or ".join(getattr(choice, "__name__", str(choice)) for choice in choices)

    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if data is None and optional:
            return None
        if len(readers) == 1:
            return readers[0](data, path, problems, loose)
        for reader in readers:
            trial = _Found()
            try:
                value = reader(data, path, trial, loose)
            except _Enough:
                continue
            if not trial:
                return value
        problems.append(Problem(path, f"expected {wanted}, found {_name(data)}"))
        return None

    return read


def _literal_reader(choices: tuple[Any, ...]) -> _Reader:
    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if data not in choices or isinstance(data, bool):
            wanted = ", ".join(str(choice) for choice in choices)
            near = hint(data, choices, len(problems)).partition("; known: ")[0]
            problems.append(Problem(path, f"{data!r:.100} is none of: {wanted}{near}"))
        return data

    return read


def _list_reader(item: _Reader) -> _Reader:
    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if not isinstance(data, list):
            problems.append(Problem(path, f"expected a list, found {_name(data)}"))
            return ()
        return tuple([item(v, f"{path}[{i}]", problems, loose) for i, v in enumerate(data)])

    return read


def _mapping_reader(item: _Reader) -> _Reader:
    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if not isinstance(data, dict):
            problems.append(Problem(path, f"expected a mapping, found {_name(data)}"))
            return {}
        return {
            str(k): item(v, f"{path}.{k}" if path else str(k), problems, loose)
            for k, v in data.items()
        }

    return read


def _own_reader(cls: Any) -> _Reader:
    """For a class that reads itself."""

    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if isinstance(data, cls):
            return _record_reader(cls)(data, path, problems, loose)
        try:
            return cls.from_json(data)
        except ParseError as error:
            problems.adopt(error.problems, path)
            return None

    return read


def _scalar_reader(kind: Any) -> _Reader:
    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if kind is float and isinstance(data, int) and not isinstance(data, bool):
            data = float(data)
        if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
            problems.append(Problem(path, f"expected {_kind_name(kind)}, found {_name(data)}"))
            return None
        if isinstance(data, float) and not math.isfinite(data):
            problems.append(Problem(path, f"{data} is not a finite number"))
        return data

    return read


def _record_reader(cls: Any) -> _Reader:
    judged = callable(getattr(cls, "problems", None))

    def read(data: Json, path: str, problems: _Found, loose: bool) -> Any:
        if not isinstance(data, dict):
            problems.append(Problem(path, f"expected a mapping, found {_name(data)}"))
            return None
        fields, readers = wire_fields(cls), _field_readers(cls)
        before = len(problems)
        values: dict[str, Any] = {}
        for key, value in data.items():
            where = f"{path}.{key}" if path else str(key)
            if (field := fields.get(key)) is not None:
                if (reader := readers.get(key)) is None:
                    reader = readers[key] = _reader(type_of(field))
                values[field.name] = reader(value, where, problems, loose)
            elif not loose:
                near = hint(key, tuple(fields), len(problems))
                problems.append(Problem(where, f"unknown field{near}"))
        for name, field in fields.items():
            if name not in data and not field.is_optional:
                problems.append(Problem(f"{path}.{name}" if path else name, "missing"))
        if len(problems) > before:
            return None
        made = cls(**values)
        if judged:
            problems.adopt(made.problems(), path)
        return made

    return read


@cache
def _field_readers(cls: type) -> dict[str, _Reader]:
    """Those of a class that were needed so far, by the names on the wire."""
    return {}


def encode(value: Any, *, full: bool = False) -> Json:
    """A record as JSON-like data; fields that hold their default are left out, unless `full`."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_record(value):
        cls: Any = type(value)
        return {
            name: encode(getattr(value, field.name), full=full)
            for name, field in wire_fields(cls).items()
            if full or not _holds_default(field, getattr(value, field.name))
        }
    if isinstance(value, Mapping):
        return {str(key): encode(item, full=full) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item, full=full) for item in value]
    return value


def _holds_default(field: Field, value: Any) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and bool(value == field.default)


def _kind_name(kind: Any) -> str:
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    return names.get(kind, str(kind))


def _name(data: Json) -> str:
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
