"""One class of records is the parser, the writer and the schema of a wire format.

`decode` reads JSON-like data strictly into a record and reports every problem with its path
(`variants[0].inputs[2].shape`); `encode` writes it back.  Field types may be `str`, `int`,
`float`, `bool`, `Literal`, another record, `tuple[T, ...]`, `Mapping[str, T]`, `T | None` and
`Json`.  `Annotated` carries a field's text and its bounds.  A class with `from_json` reads itself.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from aotc.contract.codec.spelling import hint
from aotc.contract.versions import is_newer
from aotc.records import MISSING, Field, fields, is_record, record

Json = Any
T = TypeVar("T")

MAX_JSON_BYTES = 64 << 20
MAX_DEPTH = 64
# Of objects, lists and their items together: a byte of "[[],[]" costs fifty bytes of memory.
MAX_VALUES = 1_000_000
MAX_INTEGER = 2**53 - 1  # RFC 8785 keeps integers exact up to here.
_LONGEST_DIGITS = 22  # Of a float below 1e21, with its sign.
# Nobody mends more at a time, and a document may hold a million.
MAX_PROBLEMS = 100
NEWER = "AOTC-I046"
_HALF_OF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")  # Only an escape can write one: UTF-8 has none.


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


def strict_json(data: bytes, *, limit: int = MAX_JSON_BYTES, values: int = MAX_VALUES) -> Json:
    """Parse JSON; refuse duplicate keys, NaN, infinities, huge integers, deep nesting, a BOM.

    RFC 8785 writes floats between 2^53 and 1e21 as digits alone.  Digits that are just what it
    writes are read as that float, which no integer field takes; other huge integers are refused.
    No more than `limit` bytes and `values` values are read.  Halves of surrogate pairs are refused
    too: parsers differ in what they make of them.

    Raises `ParseError`.
    """
    if len(data) > limit:
        raise ParseError([Problem("", f"{len(data)} bytes, at most {limit} are read")])

    if sum(map(data.count, (b"{", b"[", b","))) > values:
        raise ParseError([Problem("", f"more than {values} values")])

    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        result: dict[str, Json] = {}
        for key, value in items:
            if key in result:
                raise ParseError([Problem(key, "duplicate key")])
            result[key] = value
        return result

    def constant(text: str) -> Json:
        raise ParseError([Problem("", f"{text} is not JSON")])

    def integer(text: str) -> int | float:
        if len(text) > _LONGEST_DIGITS or abs(int(text)) > MAX_INTEGER:
            if len(text) <= _LONGEST_DIGITS and _is_digits(float(text), text):
                return float(text)
            raise ParseError([Problem("", f"integer {text[:20]} exceeds 2^53 - 1")])
        return int(text)

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ParseError([Problem("", f"number {text[:20]} is out of range")])
        return value

    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_constant=constant,
            parse_int=integer,
            parse_float=number,
        )
    except ParseError:
        raise
    except RecursionError:
        raise ParseError([Problem("", "nested too deeply")]) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise ParseError([Problem("", f"not JSON: {error}")]) from None
    _check_depth(value)
    if _HALF_OF_PAIR.search(data):
        check_text(value)
    return value


def _is_digits(value: float, text: str) -> bool:
    """Whether RFC 8785 writes a float as `text`: its shortest digits, then zeros, below 1e21."""
    return abs(value) < 1e21 and f"{Decimal(repr(value)):f}".removesuffix(".0") == text


def check_text(value: Json) -> None:
    """Refuse texts that UTF-8 cannot hold; names of fields as well.  Raises `ParseError`."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ParseError([Problem("", "half of a surrogate pair")]) from None
    elif isinstance(value, dict):
        for key, item in value.items():
            check_text(key)
            check_text(item)
    elif isinstance(value, list):
        for item in value:
            check_text(item)


def _check_depth(value: Json, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ParseError([Problem("", f"nested deeper than {MAX_DEPTH}")])
    if isinstance(value, dict):
        for item in value.values():
            _check_depth(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_depth(item, depth + 1)


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """Field name to its type, annotations kept."""
    return typing.get_type_hints(cls, include_extras=True)


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
        value = _decode(cls, data, path, problems, allow_unknown)
    except _Enough:
        raise ParseError(problems) from None
    if problems:
        raise ParseError(problems)
    return typing.cast(T, value)


def _require_no_newer(cls: type, data: Json) -> None:
    if not is_record(cls) or not isinstance(data, dict):
        return
    kind = hints_of(cls).get("schema")
    while get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    found = data.get("schema")
    known = get_args(kind) if get_origin(kind) is Literal else ()
    if known and found not in known and all(is_newer(found, each) for each in known):
        what = f"this was made by a newer aotc: {found}, and this release reads {known[0]}"
        raise ParseError([Problem("schema", what, NEWER)])


def _decode(kind: Any, data: Json, path: str, problems: list[Problem], loose: bool) -> Any:
    origin = get_origin(kind)
    if origin is typing.Annotated:
        inner, *notes = get_args(kind)
        before = len(problems)
        value = _decode(inner, data, path, problems, loose)
        if len(problems) == before:
            _check_notes(value, notes, path, problems)
        return value
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        return _decode_union(kind, data, path, problems, loose)
    if origin is Literal:
        if data not in get_args(kind) or isinstance(data, bool):
            wanted = ", ".join(str(choice) for choice in get_args(kind))
            near = hint(data, get_args(kind), len(problems)).partition("; known: ")[0]
            problems.append(Problem(path, f"{data!r:.100} is none of: {wanted}{near}"))
        return data
    if origin is tuple:
        if not isinstance(data, list):
            problems.append(Problem(path, f"expected a list, found {_name(data)}"))
            return ()
        item = get_args(kind)[0]
        return tuple(_decode(item, v, f"{path}[{i}]", problems, loose) for i, v in enumerate(data))
    if origin in (Mapping, dict):
        if not isinstance(data, dict):
            problems.append(Problem(path, f"expected a mapping, found {_name(data)}"))
            return {}
        item = get_args(kind)[1]
        return {
            str(k): _decode(item, v, f"{path}.{k}" if path else str(k), problems, loose)
            for k, v in data.items()
        }
    if hasattr(kind, "from_json") and not isinstance(data, kind):
        try:
            return kind.from_json(data)
        except ParseError as error:
            for problem in error.problems:
                dot = "." if path and problem.path and not problem.path.startswith("[") else ""
                problems.append(Problem(f"{path}{dot}{problem.path}", problem.what, problem.code))
            return None
    if is_record(kind):
        return _decode_record(kind, data, path, problems, loose)
    return _decode_scalar(kind, data, path, problems)


def _decode_union(kind: Any, data: Json, path: str, problems: list[Problem], loose: bool) -> Any:
    choices = [choice for choice in get_args(kind) if choice is not type(None)]
    if data is None and len(choices) < len(get_args(kind)):
        return None
    if len(choices) == 1:
        return _decode(choices[0], data, path, problems, loose)
    for choice in choices:
        trial = _Found()
        try:
            value = _decode(choice, data, path, trial, loose)
        except _Enough:
            continue
        if not trial:
            return value
    wanted = " or ".join(getattr(choice, "__name__", str(choice)) for choice in choices)
    problems.append(Problem(path, f"expected {wanted}, found {_name(data)}"))
    return None


def _decode_scalar(kind: Any, data: Json, path: str, problems: list[Problem]) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data)
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        problems.append(Problem(path, f"expected {_kind_name(kind)}, found {_name(data)}"))
        return None
    if isinstance(data, float) and not math.isfinite(data):
        problems.append(Problem(path, f"{data} is not a finite number"))
    return data


def _decode_record(cls: Any, data: Json, path: str, problems: list[Problem], loose: bool) -> Any:
    if not isinstance(data, dict):
        problems.append(Problem(path, f"expected a mapping, found {_name(data)}"))
        return None
    hints = hints_of(cls)
    fields = wire_fields(cls)
    before = len(problems)
    values: dict[str, Any] = {}
    for key, value in data.items():
        where = f"{path}.{key}" if path else str(key)
        if (field := fields.get(key)) is not None:
            values[field.name] = _decode(hints[field.name], value, where, problems, loose)
        elif not loose:
            near = hint(key, tuple(fields), len(problems))
            problems.append(Problem(where, f"unknown field{near}"))
    for name, field in fields.items():
        if name not in data and not field.is_optional:
            problems.append(Problem(f"{path}.{name}" if path else name, "missing"))
    if len(problems) > before:
        return None
    made = cls(**values)
    if hasattr(made, "problems"):
        for problem in made.problems():
            dot = "." if path and problem.path else ""
            problems.append(Problem(f"{path}{dot}{problem.path}", problem.what, problem.code))
    return made


def _check_notes(value: Any, notes: list[Any], path: str, problems: list[Problem]) -> None:
    for note in notes:
        if isinstance(note, Bounds) and value is not None:
            size = value if isinstance(value, int | float) else len(value)
            if note.least is not None and size < note.least:
                problems.append(Problem(path, f"{size} is less than {note.least:g}"))
            if note.most is not None and size > note.most:
                problems.append(Problem(path, f"{size} is more than {note.most:g}"))
        elif (
            isinstance(note, Pattern)
            and isinstance(value, str)
            and not re.fullmatch(note.regex, value)
        ):
            text = repr(value)
            text = text if len(text) <= 100 else f"{text[:97]}..."
            problems.append(Problem(path, f"{text} does not match {note.regex}"))


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
