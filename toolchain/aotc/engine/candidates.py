"""Sizes at which a model of unknown habits may run, likeliest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.contract.shapes import DimRange

# 64 first: smaller sizes run by accident (broadcasting of what five halvings made 1).
_FIRST: Final = (64, 32, 16, 8, 4, 3)
_SIZES: Final = (
    *(*_FIRST, 2, 5, 6, 7, 10, 12, 24, 28, 48, 80, 96, 100, 112, 128, 160, 192, 224, 256, 288),
    *(299, 320, 384, 400, 448, 480, 512, 576, 600, 640, 768, 800, 1024),
)
_BATCH: Final = 2
_PAIR_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 224, 256, 512)


def candidates(
    dims: Sequence[str],
    leading: frozenset[str],
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> Iterator[dict[str, int]]:
    """Combinations of sizes of `dims`.

    In order: `seeds` (sizes known to make sense); one size for all inner dims with a batch of 2;
    one inner dim the sum of two others; other common sizes; one dim, then two, that differ.
    Stated dims stay at their optimal size first; then all are at one size, as they may have to be
    equal, or at either end.
    """
    fixed = {dim: spec.optimal() for dim, spec in stated.items()}
    free = [dim for dim in dims if dim not in fixed]
    for seed in seeds:
        yield {dim: seed.get(dim, fixed.get(dim, 1)) for dim in dims}
    batches = {dim: _BATCH for dim in free if dim in leading}
    inner = [dim for dim in free if dim not in batches]
    for size, common in itertools.product(_FIRST, _common(stated)):
        yield dict.fromkeys(free, size) | batches | common
    for total, one, other in itertools.permutations(inner, 3):
        if inner.index(one) < inner.index(other):
            yield dict.fromkeys(free, 8) | {one: 3, other: 5, total: 8} | batches | fixed
    for size, end in itertools.product(_FIRST[:2], _ends(stated) if stated else ()):
        yield dict.fromkeys(free, size) | batches | end
    for size in (*_SIZES, 1):
        yield dict.fromkeys(free, size) | batches | fixed
        yield dict.fromkeys(free, size) | dict.fromkeys(batches, 1) | fixed
    for size, common in itertools.product(_SIZES, list(_common(stated))[1:]):
        yield dict.fromkeys(free, size) | batches | common
    for dim, size in itertools.product(free, (2, 4, *_SIZES)):
        yield dict.fromkeys(free, 1) | {dim: size} | fixed
    for first, second in itertools.combinations(free, 2):
        for small, large in itertools.product(_PAIR_SIZES, repeat=2):
            yield dict.fromkeys(free, 1) | {first: small, second: large} | fixed


def _ends(stated: Mapping[str, DimRange]) -> Iterator[dict[str, int]]:
    """All stated dims at their smallest or largest size."""
    for end in (0, 1):
        yield {dim: spec.compiled()[end] for dim, spec in stated.items()}


def _common(stated: Mapping[str, DimRange]) -> Iterator[dict[str, int]]:
    """Sizes of the stated dims: the optimal ones; and equal ones, as they may have to be."""
    yield {dim: spec.optimal() for dim, spec in stated.items()}
    if sum(not spec.fixed() for spec in stated.values()) > 1:
        bounds = {dim: spec.compiled() for dim, spec in stated.items()}
        free = [bounds[dim] for dim, spec in stated.items() if not spec.fixed()]
        shared = max(low for low, _ in free), min(high for _, high in free)
        for size in dict.fromkeys(shared):
            yield {dim: min(max(size, low), high) for dim, (low, high) in bounds.items()}
