"""Numbers of documents: what is accepted can be written in canonical form and read again."""

from __future__ import annotations

import pytest

from aotc.contract.canonical import canonical_json
from aotc.contract.parsing import ParseError, decode, strict_json
from aotc.contract.profile import Tolerance

# Canonical JSON writes these floats as integers beyond 2^53 - 1, which no strict reader takes.
UNREADABLE = ("9007199254740992.0", "1e16", "1e17", "-1e17", "999999999999999900000.0")
READABLE = ("9007199254740991.0", "1e21", "-1e21", "1e300", "1e-7", "-0.0", "0.1")


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_number_that_would_be_written_as_a_huge_integer(text: str) -> None:
    with pytest.raises(ParseError, match="out of range"):
        strict_json(text.encode())
    with pytest.raises(ParseError, match="lies between"):
        decode(Tolerance, {"atol": abs(float(text)), "rtol": 0.0})
    with pytest.raises(ParseError, match="lies between"):
        decode(Tolerance, {"atol": abs(int(float(text))), "rtol": 0})


@pytest.mark.parametrize("text", READABLE)
def test_other_numbers_are_read_again(text: str) -> None:
    value = strict_json(text.encode())
    assert strict_json(canonical_json(value)) == value
    assert decode(Tolerance, {"atol": abs(value), "rtol": 0.0}).atol == abs(value)
