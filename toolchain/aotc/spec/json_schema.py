"""JSON Schemas (draft 2020-12) of the wire formats, generated from the records.

They are for editors and consumers, and less strict than `codec.decode`: the rules across fields
that a record's `problems` checks are not in them.  A record that reads other forms than its fields
has a class method `json_schema`.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

from aotc.base.records import MISSING, fields
from aotc.spec.codec import Aliases, Bounds, Json, Pattern, encode, field_types

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(cls: type) -> dict[str, Json]:
    """The schema of a class of records, with the definitions of all that it refers to."""
    definitions: dict[str, Json] = {}
    top = _record(cls, definitions)
    return {
        "$schema": DRAFT,
        "title": _identity(cls),
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text(cls: type) -> str:
    """The schema as the text of the committed file."""
    return json.dumps(schema_of(cls), indent=2, ensure_ascii=False) + "\n"


def _identity(cls: type) -> str:
    """The value of the record's `schema` field, such as `aotc.profile/1`, or the class's name."""
    hint = field_types(cls).get("schema")
    while get_origin(hint) is typing.Annotated:
        hint = get_args(hint)[0]
    return str(get_args(hint)[0]) if get_origin(hint) is Literal else cls.__name__


def _schema(kind: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _annotated(arguments[0], arguments[1:], definitions)
    if kind is Any:
        return {}
    if origin in (Union, types.UnionType):
        choices = [
            _schema(choice, definitions) for choice in arguments if choice is not types.NoneType
        ]
        if types.NoneType in arguments:
            choices.append({"type": "null"})
        return {"anyOf": choices}
    if origin is Literal:
        return {"enum": list(arguments)} if len(arguments) > 1 else {"const": arguments[0]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin in (Mapping, dict):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    name = kind.__name__.lstrip("_")
    if name not in definitions:
        definitions[name] = {}  # Until it is complete, for a record that contains itself.
        own = getattr(kind, "json_schema", None)
        definitions[name] = (
            own(lambda record: _record(record, definitions))
            if own is not None
            else _record(kind, definitions)
        )
    return {"$ref": f"#/$defs/{name}"}


def _record(cls: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    hints = field_types(cls)
    properties: dict[str, Json] = {}
    required = []
    for field in fields(cls):
        name = field.name
        made = _schema(hints[name], definitions)
        if field.default is not MISSING:
            made["default"] = encode(field.default)
        elif field.default_factory is not MISSING:
            made["default"] = encode(field.default_factory())
        else:
            required.append(name)
        properties[name] = made
    return {
        "description": " ".join((cls.__doc__ or "").split()),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _annotated(inner: Any, notes: tuple[Any, ...], definitions: dict[str, Json]) -> dict[str, Json]:
    made = _schema(inner, definitions)
    # Next to an anyOf, a bound holds for the choices that it can apply to, as in `decode`.
    for note in notes:
        if isinstance(note, str):
            made["description"] = note
        elif isinstance(note, Aliases):
            made["enum"] = [*made["enum"], *(word for word, _ in note.words)]
        elif isinstance(note, Pattern):
            made["pattern"] = f"^(?:{note.regex})$"
        elif isinstance(note, Bounds):
            minimum, maximum = _bound_names(inner)
            if note.minimum is not None:
                made[minimum] = _number(note.minimum)
            if note.maximum is not None:
                made[maximum] = _number(note.maximum)
    return made


def _bound_names(kind: Any) -> tuple[str, str]:
    while get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _bound_names(next(c for c in get_args(kind) if c is not types.NoneType))
    if origin is tuple:
        return "minItems", "maxItems"
    if origin is None and kind is not str:
        return "minimum", "maximum"
    return ("minLength", "maxLength") if kind is str else ("minProperties", "maxProperties")


def _number(value: float) -> float:
    return int(value) if value == int(value) else value
