"""Numbers of documents: what is accepted can be written in canonical form and read again."""

from __future__ import annotations

import random

import pytest

from aotc.spec.codec import ParseError, decode
from aotc.spec.json import canonical_json, strict_json
from aotc.spec.payload import Value
from aotc.spec.precision import Tolerance

# Canonical JSON writes floats below 1e21 as integers, beyond 2^53 - 1 too.
DIGITS = ("9007199254740992.0", "1e16", "1e17", "-1e17", "999999999999999900000.0")
READABLE = ("9007199254740991.0", "1e21", "-1e21", "1e300", "1e-7", "-0.0", "0.1")
# No float is written so: another reader might take another number from each.
AMBIGUOUS = ("9007199254740993", "-9007199254740993", "100000000000000000001", "1" + "0" * 21)


@pytest.mark.parametrize("text", (*DIGITS, *READABLE))
def test_floats_are_read_again(text: str) -> None:
    value = strict_json(text.encode())
    assert strict_json(canonical_json(value)) == value
    assert decode(Tolerance, {"atol": abs(value), "rtol": 0.0}).atol == abs(value)


def test_every_large_float_is_read_again_as_itself() -> None:
    rng = random.Random(1121)
    for _ in range(2000):
        value = rng.choice((1, -1)) * 2 ** rng.uniform(53, 69.7)
        read = strict_json(canonical_json(value))
        assert isinstance(read, float)
        assert read == value


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_a_huge_integer_that_is_not_a_float(text: str) -> None:
    with pytest.raises(ParseError, match="exceeds 2\\^53"):
        strict_json(text.encode())


def test_no_integer_field_takes_a_huge_number() -> None:
    shape = strict_json(b'{"name": "x", "dtype": "float32", "shape": [9007199254740992]}')
    with pytest.raises(ParseError, match="shape"):
        decode(Value, shape)
