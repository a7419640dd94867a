"""Domains that artifacts hold: which sizes run as they are, and to which others are padded."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stated_ranges import domain_of, ranges

from aotc.spec.shapes import Dim, DimRange, Domain, Relation

# -- dims of an artifact

GRID = Dim(min=8, max=24, opt=8, multiple_of=8)
PADDED = Dim(min=8, max=24, opt=8, multiple_of=8, outside=("pad",), pad_from=3)
BUCKETS = Dim(min=4, max=16, opt=4, buckets=(4, 16))
FILLED = Dim(min=4, max=16, opt=4, buckets=(4, 16), outside=("pad",), pad_from=0)
ROUTED = Dim(min=1, max=20, opt=4, buckets=(4, 16), outside=("route",))
BOTH = Dim(min=1, max=20, opt=4, buckets=(4, 16), outside=("pad", "route"), pad_from=2)
GAPPED = Dim(min=1, max=6, opt=1, gaps=(3, 5))


@pytest.mark.parametrize(
    ("dim", "as_is", "padded"),
    [
        (GRID, {8, 16, 24}, {}),
        (PADDED, {8, 16, 24}, {3: 8, 8: 8, 9: 16, 16: 16, 17: 24, 24: 24}),
        (BUCKETS, {4, 16}, {}),
        (FILLED, {4, 16}, {1: 4, 4: 4, 5: 16, 16: 16}),
        (ROUTED, set(range(1, 21)), {}),
        (BOTH, set(range(1, 21)), {2: 4, 4: 4, 5: 16, 16: 16}),
        (GAPPED, {1, 2, 4, 6}, {}),
    ],
    ids=["grid", "padded", "buckets", "filled", "routed", "both", "gapped"],
)
def test_sizes_as_is_and_padded(dim: Dim, as_is: set[int], padded: dict[int, int]) -> None:
    """`padded` holds the first and last of the sizes that are padded to one size."""
    assert {size for size in range(30) if dim.allows(size)} == as_is
    found = {size: full for size in range(30) if (full := dim.padded_size(size)) is not None}
    assert {size: found.get(size) for size in padded} == padded
    ends = [
        size
        for size, full in found.items()
        if found.get(size - 1) != full or found.get(size + 1) != full
    ]
    assert ends == sorted(padded)
    for size in range(30):
        assert dim.accepts(size) == (size in as_is or size in found)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim(min=3, max=3, opt=3), "3"),
        (Dim(min=1, max=8, opt=1), "1..8"),
        (GRID, "8..24 in steps of 8"),
        (PADDED, "8..24 in steps of 8 (padded from 3)"),
        (BUCKETS, "4, 16"),
        (FILLED, "4, 16 (padded from 0)"),
        (ROUTED, "4, 16, and 1..20"),
        (BOTH, "4, 16, and 1..20 (padded from 2)"),
    ],
    ids=str,
)
def test_sizes_in_words(dim: Dim, text: str) -> None:
    assert dim.text() == text


# -- Domain.padded_sizes


def padded_by_definition(dim: Dim, bucket: int | None, size: int) -> int | None:
    """The size itself if this graph accepts it, else the next one that any graph accepts.

    None if this graph does not accept that one.
    """
    compiled = [s for s in range(1, dim.max + 1) if s in dim.buckets] or [
        s for s in range(dim.min, dim.max + 1) if s % dim.multiple_of == 0
    ]
    free = [s for s in range(dim.min, dim.max + 1) if s % dim.multiple_of == 0]
    if size in ([bucket] if bucket is not None else free):
        return size
    if dim.pad_from is None or size < max(dim.pad_from, 1):
        return None
    following = next((s for s in compiled if s >= size), None)
    return following if bucket is None or following == bucket else None


@given(
    ranges().filter(lambda made: made.bounded),
    ranges().filter(lambda made: made.bounded),
    st.integers(-3, 3),
    st.data(),
)
def test_padded_sizes_are_as_defined(
    one: DimRange, other: DimRange, constant: int, data: Any
) -> None:
    box = domain_of(one=one, other=other)
    relation = Relation(dim="sum", terms=("one", "other"), constant=constant)
    domain = Domain(dims=box.dims, relations=(relation,))
    bucketed = {name: dim.buckets for name, dim in domain.dims.items() if dim.buckets}
    dynamic = not bucketed or any("route" in dim.outside for dim in domain.dims.values())
    variants: list[dict[str, int]] = [{}] if dynamic else []
    variants += [
        dict(zip(bucketed, sizes, strict=True)) for sizes in itertools.product(*bucketed.values())
    ]
    sizes = {
        name: data.draw(st.integers(0, dim.max + 2), label=name)
        for name, dim in domain.dims.items()
    }
    for buckets in variants:
        wanted = {
            name: padded_by_definition(dim, buckets.get(name), sizes[name])
            for name, dim in domain.dims.items()
        }
        expected: dict[str, int] | None = {n: s for n, s in wanted.items() if s is not None}
        if expected is not None and len(expected) < len(wanted):
            expected = None
        elif expected is not None:
            expected["sum"] = sum(expected.values()) + constant
        assert domain.padded_sizes(buckets, domain.complete(sizes)) == expected, buckets


def test_sizes_of_unknown_dims_stay_and_missing_ones_are_not_required() -> None:
    relation = Relation(dim="sum", terms=("seq", "absent"))
    domain = Domain(dims={"seq": FILLED, "absent": GRID}, relations=(relation,))
    assert domain.padded_sizes({"seq": 16}, {"seq": 5, "x": 7}) == {"seq": 16, "x": 7}
