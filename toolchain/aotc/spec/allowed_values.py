"""The values of an input that callers may pass, as a profile states them: bounds, or a list."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated

from aotc.base.records import record, replace
from aotc.spec.codec import Bounds, ParseError, Problem
from aotc.spec.relations import read_sum, sum_text
from aotc.spec.shapes import Relation

CODE = "AOTC-I110"
MAX_VALUES = 256
# RFC 8785 keeps integers exact up to 2^53 - 1.
EXACT = 2**53
Number = int | float


@record
class AllowedValues:
    """What callers may pass: all values from `min` to `max`, or any of `values`.

    Both bounds are inclusive.  A bound in text is a size of the call: a dim, or a sum such as
    `time - 1`.
    """

    min: Annotated[int | float | str | None, "smallest value; text: a dim, or a sum of dims"] = None
    max: Annotated[int | float | str | None, "largest value; text: a dim, or a sum of dims"] = None
    values: Annotated[
        tuple[int | float | str, ...], Bounds(None, MAX_VALUES), "numbers, or text for text"
    ] = ()

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        for name, bound in (("min", self.min), ("max", self.max)):
            if self.values and bound is not None:
                found.append(Problem(name, "is stated beside values, which say all", CODE))
            elif isinstance(bound, str):
                try:
                    read_sum(bound)
                except ParseError as error:
                    what = f"{error.problems[0].what}; a number, or a sum of dims, is expected"
                    found.append(Problem(name, what, CODE))
        low, high = self.min, self.max
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            what = f"{number_text(low)} is more than max {number_text(high)}"
            found.append(Problem("min", what, CODE))
        for value in (self.min, self.max, *self.values):
            if isinstance(value, int) and abs(value) >= EXACT:
                what = f"{value:.0e} is beyond 2^53 - 1, up to which integers are exact here"
                found.append(Problem("", what, CODE))
        if len({isinstance(value, str) for value in self.values}) > 1:
            found.append(Problem("values", "are text and numbers; state one of both", CODE))
        if len(set(self.values)) < len(self.values):
            found.append(Problem("values", "has one value twice", CODE))
        return found

    def problems_of(self, kind: str, dtype: str) -> list[Problem]:
        """Why an input of this kind and element type has no such values; below `min` and so on."""
        if kind != "tensor" or dtype not in STATABLE:
            return [Problem("", f"a {kind} of {dtype} has no values that can be stated")]
        if dtype == "string" and not self.values:
            return [Problem("", "text has no bounds; state values")]
        sums = self.sums()
        bounds = {"min": self.min, "max": self.max}
        stated = [(name, bound) for name, bound in bounds.items() if name not in sums]
        stated += [("values", each) for each in self.values]
        return [
            Problem(name, why)
            for name, each in stated
            if each is not None and (why := misfit(each, dtype))
        ]

    @property
    def ends(self) -> tuple[int | float | str, ...]:
        """The stated values, or the bounds that are stated."""
        return self.values or tuple(bound for bound in (self.min, self.max) if bound is not None)

    def sums(self) -> dict[str, Relation]:
        """The bounds that are sizes of the call, by `min` and `max`."""
        bounds = {"min": self.min, "max": self.max}
        return {name: _sum(bound) for name, bound in bounds.items() if isinstance(bound, str)}

    def with_dims(self, named: Callable[[str], str]) -> AllowedValues:
        """The same with other names of dims, by their names here."""
        texts = {
            name: sum_text(replace(read, terms=tuple(named(term) for term in read.terms)))
            for name, read in self.sums().items()
        }
        return replace(self, min=texts.get("min", self.min), max=texts.get("max", self.max))

    def bounds(self, sizes: Mapping[str, int]) -> tuple[Number | None, Number | None]:
        """The smallest and the largest value at `sizes`; None: not stated, or a dim is missing."""
        return _at(self.min, sizes), _at(self.max, sizes)

    def text(self, sizes: Mapping[str, int] | None = None) -> str:
        """The values in words, such as `from 0.5 to 2`; with `sizes` also what sums of dims are."""
        if self.values:
            return ", ".join(value_text(value) for value in self.values)
        low, high = (_bound_text(bound, sizes or {}) for bound in (self.min, self.max))
        if low and high:
            return low if low == high else f"from {low} to {high}"
        return f"at most {high}" if high else f"at least {low}"


def number_text(value: float) -> str:
    """A number as short as it can be written."""
    return str(value) if isinstance(value, int) else repr(float(value)).removesuffix(".0")


def value_text(value: float | str) -> str:
    """A value in words; text in quotes."""
    return repr(value) if isinstance(value, str) else number_text(value)


def read_allowed(text: str) -> AllowedValues:
    """Read `MIN..MAX`, `MIN..`, `..MAX`, or one or more values with commas between them.

    Raises `ParseError`.
    """
    low, dots, high = text.partition("..")
    if dots and not (low.strip() or high.strip()):
        raise ParseError([Problem("", f"{text!r} has neither of two bounds", CODE)])
    if dots:
        found = AllowedValues(min=_read_word(low), max=_read_word(high))
    else:
        words = [_read_word(word) for word in text.split(",")]
        if None in words or len(words) > MAX_VALUES:
            what = f"{text!r} is not MIN..MAX or up to {MAX_VALUES} values"
            raise ParseError([Problem("", what, CODE)])
        found = AllowedValues(values=tuple(word for word in words if word is not None))
    if problems := found.problems():
        raise ParseError(problems)
    return found


def _read_word(word: str) -> int | float | str | None:
    """A number, or text; None if there is nothing."""
    word = word.strip()
    if re.fullmatch(r"[+-]?\d{1,15}", word, re.ASCII):
        return int(word)
    try:
        number = float(word)
    except ValueError:
        return word or None
    return number if math.isfinite(number) else word


def misfit(value: float | str, dtype: str) -> str:
    """Why a stated number, or text, is none of an input of `dtype`; empty if it is one."""
    if dtype == "string":
        return "" if isinstance(value, str) else f"{value_text(value)} is no text"
    if isinstance(value, str):
        return f"{value!r} is no number"
    integer = re.fullmatch(r"(u?)int(\d+)", dtype)
    if integer is None:
        largest = _LARGEST[dtype]
        return "" if abs(value) <= largest else f"{number_text(value)} is beyond {largest:g}"
    if isinstance(value, float) and not value.is_integer():
        return f"{number_text(value)} has a fraction"
    if abs(value) >= EXACT:
        return f"{value:g} is beyond 2^53 - 1, up to which integers are exact here"
    unsigned, bits = integer[1], int(integer[2])
    low = 0 if unsigned else -(1 << (bits - 1))
    high = (1 << (bits if unsigned else bits - 1)) - 1
    return "" if low <= value <= high else f"{number_text(value)} is outside {low}..{high}"


_LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
# Types of elements whose values can be stated: numbers that order, and text.
STATABLE = frozenset(
    {"string", *_LARGEST, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)


@lru_cache(maxsize=64)
def _sum(text: str) -> Relation:
    return read_sum(text)


def _at(bound: float | str | None, sizes: Mapping[str, int]) -> Number | None:
    if not isinstance(bound, str):
        return bound
    read = _sum(bound)
    return read.value(sizes) if all(term in sizes for term in read.terms) else None


def _bound_text(bound: float | str | None, sizes: Mapping[str, int]) -> str:
    if bound is None:
        return ""
    if not isinstance(bound, str):
        return number_text(bound)
    size = _at(bound, sizes)
    return bound if size is None else f"{bound} = {number_text(size)}"
