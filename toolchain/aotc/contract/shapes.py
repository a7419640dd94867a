"""Dims, their domains and relations: the shape language of profile and manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from aotc.contract.parsing import Bounds, Json, ParseError, Problem, decode, record

Size = Annotated[int, Bounds(0, 2**53 - 1)]


@record
class DimRange:
    """Sizes one dim may take: from `min` to `max` in steps of `multiple_of`; `opt` is tuned for."""

    min: Annotated[Size, "smallest size"]
    max: Annotated[Size, "largest size"]
    opt: Annotated[int | None, "size that is optimised for; the geometric mean where unset"] = None
    multiple_of: Annotated[int, Bounds(1), "every size is a multiple of this"] = 1

    @classmethod
    def from_json(cls, data: Json) -> DimRange:
        """Read `8`, `"1..8"` or `{min, max, opt, multiple_of}`; raises `ParseError`."""
        if isinstance(data, int) and not isinstance(data, bool):
            data = {"min": data, "max": data, "opt": data}
        elif isinstance(data, str):
            match = re.fullmatch(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*)?", data, re.ASCII)
            if match is None:
                raise ParseError([Problem("", f"{data!r} is neither SIZE nor MIN..MAX")])
            data = {"min": int(match[1]), "max": int(match[2] or match[1])}
        made = decode(_PlainRange, data)
        return cls(min=made.min, max=made.max, opt=made.opt, multiple_of=made.multiple_of)

    def allows(self, size: int) -> bool:
        """Whether `size` lies in the range and on its grid."""
        return self.min <= size <= self.max and size % self.multiple_of == 0

    def fixed(self) -> bool:
        """Whether only one size is allowed."""
        return self.min == self.max

    def optimal(self) -> int:
        """`opt`, or the allowed size nearest the geometric mean of the bounds."""
        if self.opt is not None:
            return self.opt
        middle = round((max(self.min, 1) * max(self.max, 1)) ** 0.5)
        snapped = max(self.multiple_of, round(middle / self.multiple_of) * self.multiple_of)
        return snapped if self.allows(snapped) else self.min


@record
class _PlainRange:
    min: Size
    max: Size
    opt: int | None = None
    multiple_of: Annotated[int, Bounds(1)] = 1

    def problems(self) -> list[Problem]:
        found = []
        if self.min > self.max:
            found.append(Problem("min", f"{self.min} is more than max {self.max}", "AOTC-S003"))
        elif self.opt is not None and not self.min <= self.opt <= self.max:
            outside = f"{self.opt} is outside of {self.min}..{self.max}"
            found.append(Problem("opt", outside, "AOTC-S003"))
        if not found and (self.min % self.multiple_of or self.max % self.multiple_of):
            found.append(Problem("multiple_of", f"bounds are no multiples of {self.multiple_of}"))
        if not found and self.opt is not None and self.opt % self.multiple_of:
            found.append(Problem("opt", f"{self.opt} is no multiple of {self.multiple_of}"))
        return found


@record
class Dim:
    """The domain of one dim in an artifact, and how it is known."""

    min: Size
    max: Size
    opt: Size
    multiple_of: Annotated[int, Bounds(1)] = 1
    origin: Annotated[
        Literal["stated", "probed"], "stated by the profile or --dim, or found by probing"
    ] = "probed"
    tested: Annotated[tuple[Size, ...], "sizes at which the original model ran at build"] = ()
    gaps: Annotated[tuple[Size, ...], "sizes between the bounds that were seen to fail"] = ()
    stopped_by: Annotated[
        Literal["", "error", "size", "work", "bytes", "count", "time"],
        "what ended the search upwards; empty where the range was stated",
    ] = ""

    def allows(self, size: int) -> bool:
        """Whether `size` lies in the range and on its grid."""
        inside = self.min <= size <= self.max and size % self.multiple_of == 0
        return inside and size not in self.gaps

    def text(self) -> str:
        """The sizes in words, such as `32..1024 in steps of 32`."""
        if self.min == self.max:
            return str(self.min)
        steps = f" in steps of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"{self.min}..{self.max}{steps}"


@record
class Relation:
    """`dim` equals the sum of `terms` plus `constant` (an equality has one term)."""

    dim: str
    terms: Annotated[tuple[str, ...], Bounds(1)]
    constant: int = 0

    def __str__(self) -> str:
        text = " + ".join(self.terms)
        if self.constant:
            text += f" {'+' if self.constant > 0 else '-'} {abs(self.constant)}"
        return f"{self.dim} = {text}"

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size that the relation demands of `dim`; `KeyError` where a term is unknown."""
        return sum(sizes[term] for term in self.terms) + self.constant


@record
class Domain:
    """All shapes an artifact was proven for: a box of free dims, and what follows from them."""

    dims: Annotated[Mapping[str, Dim], "free dims by name"] = field(default_factory=dict)
    relations: Annotated[tuple[Relation, ...], "dims that follow from free ones"] = ()

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes` of the free dims, with the related dims added."""
        result = dict(sizes)
        for relation in self.relations:
            result[relation.dim] = relation.value(result)
        return result

    def corner(self, which: Literal["min", "opt", "max"]) -> dict[str, int]:
        """Sizes of every dim at the smallest, optimal or largest corner of the box."""
        return self.complete({name: getattr(dim, which) for name, dim in self.dims.items()})
