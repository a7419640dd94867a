"""JSON read strictly: what one parser takes for another value than the next is refused."""

from __future__ import annotations

import json
import math
import re

from aotc.contract.codec.parsing import Json, ParseError, Problem

MAX_JSON_BYTES = 64 << 20
MAX_DEPTH = 64
# Of objects, lists and their items together: a byte of "[[],[]" costs fifty bytes of memory.
MAX_VALUES = 1_000_000
MAX_INTEGER = 2**53 - 1  # RFC 8785 keeps integers exact up to here.
_LONGEST_DIGITS = 22  # Of a float below 1e21, with its sign.
_HALF_OF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")  # Only an escape can write one: UTF-8 has none.


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
    from decimal import Decimal

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
