"""Sizes at which an unknown model may run, likeliest first."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Relation
from aotc.probing.sizes.dim_hints import DimHints

# 64 first: smaller sizes may run by accident, as five halvings make them 1, which broadcasts.
_FIRST: Final = (64, 32, 16, 8, 4, 3)
_SIZES: Final = (
    *(*_FIRST, 2, 5, 6, 7, 10, 12, 24, 28, 48, 80, 96, 100, 112, 128, 160, 192, 224, 256, 288),
    *(299, 320, 384, 400, 416, 448, 480, 512, 576, 600, 640, 720, 736, 768, 800, 1024),
)
# With three entries, one more or one fewer cannot be broadcast.
_BATCH: Final = 3
_OTHER_BATCHES: Final = (2, 1)
# How many sums from names are tried with a term of 1.
_MAX_DECODING_SUMS: Final = 4
_PAIR_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 224, 256, 512)
_MAX_SUGGESTED_SIZE: Final = 8192
# How many sums of two dims are tried: many dims have more of them than there are runs.
_MAX_DIM_SUMS: Final = 1000
_MISMATCH: Final = re.compile(r"(\d{1,6}) (?:by|vs|and|!=) (\d{1,6})")


def candidates(
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> Iterator[dict[str, int]]:
    """Combinations of sizes of `dims`, likeliest first.

    A dim whose name is a number, or whose size weights require, has that size before others.

    In order: `seeds` (sizes known to make sense); sizes on stated grids; one inner dim as the sum
    of two others, as names suggest; one size for all inner dims with a batch of 3; one size for
    images and another for lengths; any inner dim as the sum of two others; other common sizes; one
    dim, then two, that differ from the rest.  Stated dims first keep their optimal size; then all
    have one size, as they may have to be equal, or all are at one end of their range.
    """
    known = {dim: int(dim) for dim in dims if _is_size(dim)} | dict(hints.known)
    known = {dim: size for dim, size in known.items() if dim in dims and dim not in stated}
    if known:
        yield from _combinations(dims, hints, stated, seeds, known)
    yield from _combinations(dims, hints, stated, seeds, {})


def _combinations(
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
    known: Mapping[str, int],
) -> Iterator[dict[str, int]]:
    fixed = {dim: spec.optimal() for dim, spec in stated.items()} | dict(known)
    free = [dim for dim in dims if dim not in fixed]
    for seed in seeds:
        yield {dim: seed.get(dim, fixed.get(dim, 1)) for dim in dims}
    rows = next((fixed[dim] for dim in stated if dim in hints.leading), _BATCH)
    batches = {dim: rows for dim in free if dim in hints.leading}
    inner = [dim for dim in free if dim not in batches]
    for size in _FIRST if any(dim in hints.grids for dim in free) else ():
        # All equal, as dims may have to be.
        alike = dict.fromkeys(inner, _rounded_up(size, inner, hints))
        yield alike | dict.fromkeys(batches, _rounded_up(_BATCH, batches, hints)) | fixed
    for count in (batches, dict.fromkeys(batches, 1)) if batches else ({},):
        yield from _sum_sizes(hints.sums, free, count, fixed)
    yield from _decoding_sizes(hints.sums, free, batches, fixed)
    alike = {dim: fixed[similar[0]] for dim in inner if (similar := hints.similar_to(dim, stated))}
    for size in _FIRST if alike else ():
        yield dict.fromkeys(free, size) | batches | alike | fixed
    for size, common in itertools.product(_FIRST, _common_sizes(stated)):
        yield dict.fromkeys(free, size) | batches | fixed | common
    pixels = {dim for group in hints.images for dim in group}.intersection(inner)
    for size in _SIZES if 0 < len(pixels) < len(inner) else ():
        yield dict.fromkeys(free, 16) | dict.fromkeys(pixels, size) | batches | fixed
    for grouped in (True, False):
        groups = _groups(inner, hints) if grouped else [[dim] for dim in inner]
        triples = itertools.permutations(range(len(groups)), 3)
        for total, one, other in itertools.islice(triples, _MAX_DIM_SUMS):
            if one < other:
                sizes = {**dict.fromkeys(groups[one], 3), **dict.fromkeys(groups[other], 5)}
                sizes |= dict.fromkeys(groups[total], 8)
                yield dict.fromkeys(free, 8) | sizes | batches | fixed
    for size, end in itertools.product(_FIRST[:2], _range_ends(stated) if stated else ()):
        yield dict.fromkeys(free, size) | batches | fixed | end
    for size in (*_SIZES, *hints.sizes, 1):
        for batch in _OTHER_BATCHES if batches else ():
            yield dict.fromkeys(free, size) | dict.fromkeys(batches, batch) | fixed
        yield dict.fromkeys(free, size) | batches | fixed
    for size, common in itertools.product(_SIZES, list(_common_sizes(stated))[1:]):
        yield dict.fromkeys(free, size) | batches | fixed | common
    for dim, size in itertools.product(free, (2, 4, *_SIZES)):
        yield dict.fromkeys(free, 1) | {dim: size} | fixed
    for first, second in itertools.combinations(free, 2):
        for small, large in itertools.product(_PAIR_SIZES, repeat=2):
            yield dict.fromkeys(free, 1) | {first: small, second: large} | fixed


def _rounded_up(size: int, dims: Iterable[str], hints: DimHints) -> int:
    """The smallest common multiple of the grids of `dims` that is at least `size`."""
    step = math.lcm(*(hints.grids.get(dim, 1) for dim in dims))
    return -(-size // step) * step


def _is_size(name: str) -> bool:
    """Whether a dim's name is a size: some exporters write fixed sizes as names."""
    known = name.isascii() and name.isdecimal() and len(name) <= len(str(_MAX_SUGGESTED_SIZE))
    return known and 0 < int(name) <= _MAX_SUGGESTED_SIZE


def suggested_sizes(error: str, size: int) -> Iterator[int]:
    """Sizes for all inner dims that the error of a failure at `size` suggests.

    ONNX Runtime names the two sizes that do not match, such as "32 by 1500".  If `size` led to 32,
    then a size larger by the same factor leads to 1500.
    """
    for one, other in _MISMATCH.findall(error):
        for have, want in ((int(one), int(other)), (int(other), int(one))):
            if 1 < have <= size and want > 1 and size * want % have == 0:
                found = size * want // have
                if found != size and found <= _MAX_SUGGESTED_SIZE:
                    yield found


def mismatched_with(error: str, size: int) -> Iterator[int]:
    """Sizes that, by the error, do not match `size`."""
    for one, other in _MISMATCH.findall(error):
        for have, want in ((int(one), int(other)), (int(other), int(one))):
            if have == size and 1 < want <= _MAX_SUGGESTED_SIZE and want != size:
                yield want


def _groups(dims: Sequence[str], hints: DimHints) -> list[list[str]]:
    """Dims that are likely to be equal: of floats, those with one label, as all layers' past."""
    groups: dict[str, list[str]] = {}
    for dim in dims:
        label = hints.labels.get(dim, dim)
        groups.setdefault(label if "float" in label else dim, []).append(dim)
    return list(groups.values())


def _sum_sizes(
    sums: Sequence[Relation],
    free: Sequence[str],
    batches: dict[str, int],
    fixed: dict[str, int],
) -> Iterator[dict[str, int]]:
    """Sizes at which one dim or all dims are the sums that their names suggest."""
    known = [relation for relation in sums if relation.dim in free]
    groups = [[relation] for relation in known]
    if len({relation.dim for relation in known}) == len(known) > 1:
        groups.insert(0, known)
    for group, size in itertools.product(groups, _FIRST[2:4]):
        sizes = dict.fromkeys(free, size) | batches | fixed
        for position, term in enumerate(
            dict.fromkeys(t for relation in group for t in relation.terms)
        ):
            if term in free and term not in batches:
                sizes[term] = size + position
        if all(sizes.keys() >= set(relation.terms) for relation in group):
            yield sizes | {relation.dim: relation.value(sizes) for relation in group}


def _decoding_sizes(
    sums: Sequence[Relation],
    free: Sequence[str],
    batches: dict[str, int],
    fixed: dict[str, int],
) -> Iterator[dict[str, int]]:
    """Sizes at which a dim is such a sum with one term of 1: one token that follows a past."""
    for relation in [relation for relation in sums if relation.dim in free][:_MAX_DECODING_SUMS]:
        for one in dict.fromkeys(term for term in relation.terms if term in free):
            sizes = dict.fromkeys(free, _FIRST[3]) | batches | fixed | {one: 1}
            if sizes.keys() >= set(relation.terms):
                yield sizes | {relation.dim: relation.value(sizes)}


def _range_ends(stated: Mapping[str, DimRange]) -> Iterator[dict[str, int]]:
    """All stated dims at their minimum, then all at their maximum."""
    for end in (0, 1):
        yield {dim: spec.compiled_bounds()[end] for dim, spec in stated.items()}


def _common_sizes(stated: Mapping[str, DimRange]) -> Iterator[dict[str, int]]:
    """Sizes of the stated dims: the optimal ones; then equal ones, as they may have to be."""
    yield {dim: spec.optimal() for dim, spec in stated.items()}
    if sum(not spec.is_fixed() for spec in stated.values()) > 1:
        bounds = {dim: spec.compiled_bounds() for dim, spec in stated.items()}
        free = [bounds[dim] for dim, spec in stated.items() if not spec.is_fixed()]
        shared = max(low for low, _ in free), min(high for _, high in free)
        for size in dict.fromkeys(shared):
            yield {dim: min(max(size, low), high) for dim, (low, high) in bounds.items()}
