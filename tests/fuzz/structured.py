"""Mutations of JSON documents as values: parts are dropped, doubled, swapped, or change type.

A changed byte breaks most documents; these mutations keep the syntax valid.
"""

from __future__ import annotations

import dataclasses
import json
import random
import typing
from typing import Any, Literal, get_args, get_origin

from aotc.spec.codec import field_types

Json = Any
ODD: tuple[Json, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 255, 2**31, 2**53 - 1, 2**53),
    *(0.0, -0.0, 0.5, 1e-7, 1e17, 1e21, 1e308, -1.5),
    *(
        "",
        " ",
        "a",
        "*",
        "0",
        "../x",
        "/dev/zero",
        "a/b",
        "a\\b",
        "a\n",
        "a\0",
        "~x/y",
        "\ud800",
        "\u00e9",
        "\x7f",
    ),
    *("0" * 64, "2027-01-31T00:00:00Z", "2027-02-30T00:00:00Z", "1.4.0", "1..8"),
    *([], {}, [[]], [{}], {"": {}}),
)


def json_number(digits: str) -> int | float:
    """An integer as in RFC 8785: numbers are doubles, and long digits need not be exact."""
    return int(digits) if abs(int(digits)) < 2**53 else float(digits)


def words_of(*records: type) -> frozenset[str]:
    """Names of fields and choices of these records and of nested ones."""
    found: set[str] = set()
    seen: set[Any] = set()

    def look(kind: Any) -> None:
        if get_origin(kind) is Literal:
            found.update(str(choice) for choice in get_args(kind))
        elif get_origin(kind) is not None:
            for argument in get_args(kind):
                if get_origin(argument) is not None or isinstance(argument, type):
                    look(argument)
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in seen:
            seen.add(kind)
            for name, hint in field_types(kind).items():
                found.add(name)
                look(hint)

    for record in records:
        look(record)
    return frozenset(found)


def mutated(data: bytes, size: int, seed: int) -> bytes | None:
    """The JSON document with some values changed; None if it is invalid or gets too large."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    drawn = random.Random(seed)
    try:
        for _ in range(drawn.choice((1, 1, 1, 2, 4))):
            value = changed(value, drawn)
        made = json.dumps(value, ensure_ascii=drawn.random() < 0.5).encode("utf-8", "replace")
    except RecursionError:
        return None
    return made if 0 < len(made) <= size else None


def changed(value: Json, drawn: random.Random) -> Json:
    """The value with one part changed."""
    places = list(_places(value))
    if not places:
        return _copy(drawn.choice(ODD))
    holder, key = drawn.choice(places)
    kind = drawn.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = _copy(drawn.choice(ODD))
    elif kind == 2:
        holder[key] = _copy(_at(drawn.choice(places)))
    elif kind == 3 and isinstance(holder, list):
        holder.insert(key, _copy(_at(drawn.choice(places))))
    elif kind == 3:
        holder[f"{key}{drawn.choice('xX_ ')}"] = _copy(holder[key])
    elif kind == 4:
        other, place = drawn.choice(places)
        # One may lie in the other, which would make a circle.
        one, two = _copy(holder[key]), _copy(other[place])
        other[place] = one
        holder[key] = two
    else:
        holder[key] = _nudged(holder[key], drawn)
    return value


def _nudged(value: Json, drawn: random.Random) -> Json:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return drawn.choice((value + 1, value - 1, -value, value * 1024, float(value), str(value)))
    if isinstance(value, str) and value:
        place = drawn.randrange(len(value))
        with_what = drawn.choice(("", "/", ".", "a", "A", "0", "\u00e9", "\n", " ", value))
        return value[:place] + with_what + value[place + 1 :]
    return [value]


def _places(value: Json) -> typing.Iterator[tuple[Any, Any]]:
    pending = [value]
    while pending:
        holder = pending.pop()
        if not isinstance(holder, list | dict):
            continue
        for key in range(len(holder)) if isinstance(holder, list) else list(holder):
            yield holder, key
            if isinstance(holder[key], list | dict):
                pending.append(holder[key])


def _at(place: tuple[Any, Any]) -> Json:
    return place[0][place[1]]


def _copy(value: Json) -> Json:
    return json.loads(json.dumps(value))
