"""JSON: a strict reader, the canonical form (RFC 8785), and the form that is shown."""

from __future__ import annotations

import json
import math
import re

from aotc.base.records import is_record
from aotc.spec.codec import Json, ParseError, Problem, encode

MAX_JSON_BYTES = 64 << 20
MAX_DEPTH = 64
# Objects, lists and their items together: a byte of "[[],[]" takes fifty bytes of memory.
MAX_VALUES = 1_000_000
# RFC 8785 keeps integers exact up to here.
MAX_INTEGER = 2**53 - 1
# Digits of a float below 1e21, with its sign.
_MAX_DIGITS = 22
# UTF-8 cannot hold surrogates; an escape can.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def canonical_json(value: Json) -> bytes:
    """`value` in the form of RFC 8785; raises `ValueError` for what JSON cannot hold.

    Equal documents have equal bytes.
    """
    import rfc8785

    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        # As of a path: the text was bytes of another encoding.
        if isinstance(error.__cause__, UnicodeEncodeError):
            raise error.__cause__ from None
        raise


def canonical_sha256(value: Json) -> str:
    """sha256 (hex) of the canonical form."""
    import hashlib

    return hashlib.sha256(canonical_json(value)).hexdigest()


def strict_json(
    data: bytes,
    *,
    limit: int = MAX_JSON_BYTES,
    values: int = MAX_VALUES,
    integers: int = MAX_INTEGER,
) -> Json:
    """The value of a JSON text in UTF-8; what two parsers could read differently is refused.

    Raises `ParseError` for duplicate keys, NaN, infinities, a byte order mark, nesting deeper than
    `MAX_DEPTH`, unpaired surrogates, more than `limit` bytes or `values` values, and for integers
    beyond `integers`, which is more than RFC 8785's where others wrote the document.  RFC 8785
    writes floats between 2^53 and 1e21 as digits without exponent: digits that are exactly what it
    writes for a float are read as that float, and are not integers.
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
        if len(text) > _MAX_DIGITS or abs(int(text)) > integers:
            if len(text) <= _MAX_DIGITS and _is_digits(float(text), text):
                return float(text)
            raise ParseError(
                [Problem("", f"integer {text[:20]} exceeds 2^{integers.bit_length()} - 1")]
            )
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
    if _SURROGATE.search(data):
        check_text(value)
    return value


def _is_digits(value: float, text: str) -> bool:
    """Whether RFC 8785 writes a float as `text`: below 1e21, its shortest digits, then zeros."""
    from decimal import Decimal

    return abs(value) < 1e21 and f"{Decimal(repr(value)):f}".removesuffix(".0") == text


def check_text(value: Json) -> None:
    """Raise `ParseError` if a text in `value`, or a name of a field, is not valid Unicode."""
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


def to_json(report: object) -> dict[str, Json]:
    """A report, or a record in one, as the data of JSON: what `--json` prints, every field in it.

    Tuples become lists, and what is None stays None, so that `json.dumps` takes the result.  Times
    are in seconds and sizes in bytes, as in the record.  Raises TypeError for what is no record.
    """
    if isinstance(report, type) or not is_record(report):
        raise TypeError(f"this is no report: {type(report).__name__}")
    found: dict[str, Json] = encode(report, full=True)
    return found


def document(value: Json) -> str:
    """`value` as an indented document in printable ASCII; raises ValueError for NaN and infinity.

    Escaped are the character that steers a terminal and that JSON leaves as it is, and what the
    runner of GitHub Actions obeys anywhere in a line, `##[`.
    """
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    return text.replace("\x7f", "\\u007f").replace("##[", "\\u0023#[")
