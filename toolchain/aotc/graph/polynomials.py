"""Sizes as polynomials in the dims of a model, such as 12 times batch times seq, plus 64.

A rule for a size is found from sizes at which it is known, as the simplest sum of products of dims
that gives all of them.  What is rounded, as behind a convolution with a stride, has a rule where
all of the known sizes divide evenly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from aotc.base.records import record

Monomial = tuple[str, ...]
"""Dims of a product, sorted, each as often as its power; empty: a number alone."""
Point = tuple[Mapping[str, int], int]
"""The sizes of dims, and the size that is known there."""

_MAX_DENOMINATOR: Final = 64


@record(kw_only=False)
class Polynomial:
    """A sum of products of dims, with coefficients by monomial."""

    terms: Mapping[Monomial, Fraction]

    @classmethod
    def of(cls, number: int) -> Polynomial:
        """A constant."""
        return cls({(): Fraction(number)} if number else {})

    def __add__(self, other: Polynomial) -> Polynomial:
        found = dict(self.terms)
        for monomial, factor in other.terms.items():
            found[monomial] = found.get(monomial, Fraction(0)) + factor
        return Polynomial({name: factor for name, factor in found.items() if factor})

    def __mul__(self, other: Polynomial) -> Polynomial:
        found: dict[Monomial, Fraction] = {}
        for (one, a), (two, b) in itertools.product(self.terms.items(), other.terms.items()):
            monomial = tuple(sorted((*one, *two)))
            found[monomial] = found.get(monomial, Fraction(0)) + a * b
        return Polynomial({name: factor for name, factor in found.items() if factor})

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value at sizes of its dims, rounded up."""
        total = sum(
            (factor * math.prod(sizes[dim] for dim in monomial))
            for monomial, factor in self.terms.items()
        )
        return math.ceil(total)


def total(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The sum of several."""
    found = Polynomial({})
    for each in polynomials:
        found += each
    return found


def fitted(points: Sequence[Point], dims: Sequence[str]) -> Polynomial | None:
    """The simplest rule by which the sizes at all of `points` follow from `dims`; None: none.

    Whole coefficients come before others, and few products before many.
    """
    first = points[0][1]
    if all(size == first for _, size in points):
        return Polynomial.of(first)
    varied = [dim for dim in dims if len({sizes.get(dim) for sizes, _ in points}) > 1]
    fractional: Polynomial | None = None
    for basis in _bases(varied):
        factors = _solved(points, basis)
        if factors is None:
            continue
        if all(factor.denominator == 1 for factor in factors):
            return Polynomial(dict(zip(basis, factors, strict=True)))
        if fractional is None and all(f.denominator <= _MAX_DENOMINATOR for f in factors):
            fractional = Polynomial(dict(zip(basis, factors, strict=True)))
    return fractional


def _bases(dims: Sequence[str]) -> Iterator[tuple[Monomial, ...]]:
    """Sets of products that a size may consist of, simplest first."""
    single: list[Monomial] = [(dim,) for dim in dims]
    pairs: list[Monomial] = [
        tuple(sorted(pair)) for pair in itertools.combinations_with_replacement(dims, 2)
    ]
    triples: list[Monomial] = [tuple(sorted(each)) for each in itertools.combinations(dims, 3)]
    yield from ((each,) for each in single)
    yield from ((each, ()) for each in single)
    yield from ((each,) for each in pairs)
    yield from itertools.combinations(single, 2)
    yield from ((*two, ()) for two in itertools.combinations(single, 2))
    yield from ((each, ()) for each in pairs)
    yield from ((each,) for each in triples)
    yield from ((one, two) for one in pairs for two in single)
    yield from itertools.combinations(pairs, 2)
    yield from ((one, two, ()) for one in pairs for two in single)


def _solved(points: Sequence[Point], basis: Sequence[Monomial]) -> tuple[Fraction, ...] | None:
    """Coefficients of all products of `basis`, none of them zero, that give every point."""
    if len(points) < len(basis):
        return None
    # Whole numbers all the way: fractions take ten times the time.
    rows = [
        [*(math.prod(sizes.get(d, 0) for d in each) for each in basis), size]
        for sizes, size in points
    ]
    width = len(basis)
    for column in range(width):
        at = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if at is None:
            return None
        rows[column], rows[at] = rows[at], rows[column]
        pivot = rows[column]
        for index, row in enumerate(rows):
            if index != column and (factor := row[column]):
                rows[index] = [
                    a * pivot[column] - factor * b for a, b in zip(row, pivot, strict=True)
                ]
    if any(row[width] for row in rows[width:]):
        return None
    found = tuple(Fraction(row[width], row[at]) for at, row in enumerate(rows[:width]))
    return found if all(found) else None
