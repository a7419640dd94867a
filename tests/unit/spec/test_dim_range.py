"""Ranges of dims as profiles state them: spellings, refusals, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stated_ranges import domain_of, ranges

from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.profile import Profile
from aotc.spec.shapes import UNBOUNDED, DimRange


def read(text: Json) -> DimRange:
    return DimRange.from_json(text)


def span(low: int, high: int, **fields: Any) -> DimRange:
    return DimRange(min=low, max=high, **fields)


# -- spellings

SPELLINGS: list[tuple[Json, DimRange]] = [
    (8, span(8, 8, opt=8)),
    (0, span(0, 0, opt=0)),
    ("8", span(8, 8)),
    ("1..8", span(1, 8)),
    ("  1 ..  8 ", span(1, 8)),
    ("0..0", span(0, 0)),
    ("32..640:32", span(32, 640, multiple_of=32)),
    (" 0 .. 64 : 8 ", span(0, 64, multiple_of=8)),
    ("1..8:1", span(1, 8)),
    ("64..64:8", span(64, 64, multiple_of=8)),
    ({"min": 1, "max": 8}, span(1, 8)),
    ({"min": 1, "max": 8, "opt": 4}, span(1, 8, opt=4)),
    ({"min": 8, "max": 64, "multiple_of": 8}, span(8, 64, multiple_of=8)),
    ({"multiple_of": 8}, span(8, UNBOUNDED, multiple_of=8, bounded=False)),
    ({"multiple_of": 7}, span(7, UNBOUNDED // 7 * 7, multiple_of=7, bounded=False)),
    (
        {"multiple_of": 8, "outside": "route"},
        span(8, UNBOUNDED, multiple_of=8, outside=("route",), bounded=False),
    ),
    ({}, span(1, UNBOUNDED, bounded=False)),
    # Buckets alone are all that is allowed; with an action, sizes below them are too.
    ({"buckets": [32, 64]}, span(32, 64, buckets=(32, 64))),
    ({"buckets": [32]}, span(32, 32, buckets=(32,))),
    ({"buckets": [32, 64], "outside": "reject"}, span(32, 64, buckets=(32, 64))),
    ({"buckets": [32, 64], "outside": []}, span(32, 64, buckets=(32, 64))),
    ({"buckets": [32, 64], "outside": ["reject"]}, span(32, 64, buckets=(32, 64))),
    (
        {"buckets": [32, 64], "outside": "pad"},
        span(1, 64, buckets=(32, 64), outside=("pad",)),
    ),
    (
        {"buckets": [32, 64], "outside": "route", "max": 128},
        span(1, 128, buckets=(32, 64), outside=("route",)),
    ),
    (
        {"buckets": [32, 64], "outside": ["pad", "route"], "min": 4, "max": 128, "opt": 64},
        span(4, 128, opt=64, buckets=(32, 64), outside=("pad", "route")),
    ),
    (
        {"buckets": [32, 64], "outside": ["route", "pad"], "multiple_of": 32},
        span(1, 64, buckets=(32, 64), outside=("route", "pad"), multiple_of=32),
    ),
    (
        {"min": 1, "max": 64, "multiple_of": 8, "outside": "pad"},
        span(1, 64, multiple_of=8, outside=("pad",)),
    ),
]


@pytest.mark.parametrize(("text", "expected"), SPELLINGS, ids=str)
def test_every_spelling_is_read(text: Json, expected: DimRange) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(("text", "expected"), SPELLINGS, ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_what_is_read_is_written_and_read_again(text: Json, expected: DimRange, full: bool) -> None:
    assert decode(DimRange, encode(read(text), full=full)) == expected


# -- refusals: path, code, words

REFUSALS: list[tuple[Json, str, str, str]] = [
    ("", "", "", "'' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("1..", "", "", "'1..' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("..8", "", "", "'..8' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("1...8", "", "", "'1...8' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("-1", "", "", "'-1' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    *(
        (text, "", "", f"{text!r} is not SIZE, MIN..MAX or MIN..MAX:STEP")
        for text in ("8:8", "1..8:", ":8", "1..:8", "1..8:-1", "1..8:2:2", "1..8:1.5", "8:1..8")
    ),
    ("1-8", "", "", "'1-8' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("\u0663", "", "", "'\u0663' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("1" * 16, "", "", f"'{'1' * 16}' is not SIZE, MIN..MAX or MIN..MAX:STEP"),
    ("8..1", "min", "AOTC-S003", "8 is more than max 1"),
    (True, "", "", "expected a mapping, found true"),
    (None, "", "", "expected a mapping, found nothing"),
    (2.0, "", "", "expected a mapping, found 2.0"),
    ([1, 8], "", "", "expected a mapping, found a list"),
    ({"min": -1, "max": 8}, "min", "", "-1 is less than 0"),
    ({"min": 1, "max": 2**53}, "max", "", "9007199254740992 is more than 9.0072e+15"),
    ({"min": "1", "max": 8}, "min", "", "expected an integer, found '1'"),
    ({"min": 1, "max": True}, "max", "", "expected an integer, found true"),
    (
        {"min": 1},
        "max",
        "AOTC-S003",
        "is missing: a range has min and max, or neither and is probed",
    ),
    (
        {"max": 8},
        "min",
        "AOTC-S003",
        "is missing: a range has min and max, or neither and is probed",
    ),
    ({"min": 9, "max": 8}, "min", "AOTC-S003", "9 is more than max 8"),
    ({"min": 2, "max": 8, "opt": 1}, "opt", "AOTC-S003", "1 is outside 2..8"),
    ({"min": 2, "max": 8, "opt": 9}, "opt", "AOTC-S003", "9 is outside 2..8"),
    ({"multiple_of": 0}, "multiple_of", "", "0 is less than 1"),
    ("32..640:0", "multiple_of", "AOTC-S003", "the step of '32..640:0' is less than 1"),
    *(
        (text, "multiple_of", "AOTC-S003", f"the ends of {ends} are not multiples of 8")
        for text, ends in (
            ({"min": 1, "max": 64, "multiple_of": 8}, "1..64"),
            ({"min": 8, "max": 60, "multiple_of": 8}, "8..60"),
            ({"min": 1, "max": 60, "multiple_of": 8, "outside": "pad"}, "1..60"),
            ("1..64:8", "1..64"),
            ("8..60:8", "8..60"),
        )
    ),
    ("640..32:32", "min", "AOTC-S003", "640 is more than max 32"),
    ({"min": 8, "max": 64, "multiple_of": 8, "opt": 12}, "opt", "", "12 is not a multiple of 8"),
    ({"buckets": [64, 32]}, "buckets", "AOTC-S003", "are not increasing"),
    ({"buckets": [32, 32]}, "buckets", "AOTC-S003", "are not increasing"),
    ({"buckets": [0, 32]}, "buckets[0]", "", "0 is less than 1"),
    ({"buckets": list(range(1, 258))}, "buckets", "", "257 is more than 256"),
    ({"buckets": 32}, "buckets", "", "expected a list, found 32"),
    (
        {"buckets": [32, 64], "min": 33, "outside": "pad"},
        "buckets",
        "AOTC-S003",
        "are outside 33..64",
    ),
    (
        {"buckets": [32, 64], "max": 63, "outside": "route"},
        "buckets",
        "AOTC-S003",
        "are outside 1..63",
    ),
    (
        {"buckets": [32, 60], "multiple_of": 8},
        "buckets",
        "AOTC-S003",
        "are not multiples of 8",
    ),
    ({"buckets": [32, 64], "opt": 48}, "opt", "", "48 is not one of the buckets"),
    (
        {"buckets": [32, 64], "max": 128, "outside": "pad"},
        "max",
        "AOTC-S003",
        "128 is above the largest bucket, and sizes are not routed",
    ),
    (
        {"buckets": [32, 64], "max": 128},
        "max",
        "AOTC-S003",
        "128 is above the largest bucket, and sizes are not routed",
    ),
    (
        {"buckets": [32, 64], "min": 1},
        "min",
        "AOTC-S003",
        "1 is below the smallest bucket, and sizes are neither padded nor routed",
    ),
    (
        {"min": 8, "max": 8, "outside": "route"},
        "outside",
        "",
        "route requires buckets, or a range for the dynamic variant",
    ),
    (
        {"min": 1, "max": 8, "outside": "drop"},
        "outside",
        "",
        "drop: expected reject, pad, route, or [pad, route]",
    ),
    (
        {"min": 1, "max": 8, "outside": ["pad", "pad"]},
        "outside",
        "",
        "pad, pad: expected reject, pad, route, or [pad, route]",
    ),
    (
        {"min": 1, "max": 8, "outside": ["pad", "reject"]},
        "outside",
        "",
        "pad, reject: expected reject, pad, route, or [pad, route]",
    ),
    (
        {"min": 1, "max": 8, "outside": 3},
        "outside",
        "",
        "expected str or tuple, found 3",
    ),
    ({"min": 1, "max": 8, "bucket": [4]}, "bucket", "", "unknown field; did you mean 'buckets'?"),
]


@pytest.mark.parametrize(("text", "path", "code", "what"), REFUSALS, ids=lambda v: str(v)[:60])
def test_every_refusal_says_where_and_why(text: Json, path: str, code: str, what: str) -> None:
    with pytest.raises(ParseError) as caught:
        read(text)
    found = caught.value.problems[0]
    assert (found.path, found.code, found.what) == (path, code, what)


def test_a_profile_gives_the_whole_path_of_each_problem() -> None:
    document = {
        "schema": "aotc.profile/1",
        "name": "mine",
        "dims": {"seq": {"buckets": [64, 32]}, "batch": "8..1", "other": "many"},
    }
    with pytest.raises(ParseError) as caught:
        decode(Profile, document)
    assert [(found.path, found.code) for found in caught.value.problems] == [
        ("dims.seq.buckets", "AOTC-S003"),
        ("dims.batch.min", "AOTC-S003"),
        ("dims.other", ""),
    ]


# -- what a range means


@pytest.mark.parametrize(
    ("text", "compiled", "optimal"),
    [
        (8, (8, 8), 8),
        ("1..64", (1, 64), 8),
        ("0..64", (0, 64), 8),
        ("0", (0, 0), 0),
        ({"min": 1, "max": 64, "opt": 3}, (1, 64), 3),
        ({"min": 32, "max": 1024, "multiple_of": 32}, (32, 1024), 192),
        ({"min": 1, "max": 64, "multiple_of": 8, "outside": "pad"}, (8, 64), 24),
        ({"min": 9, "max": 64, "multiple_of": 8, "outside": "pad"}, (16, 64), 32),
        ({"min": 0, "max": 64, "outside": "pad"}, (1, 64), 8),
        ({"buckets": [32, 64, 512]}, (32, 512), 64),
        ({"buckets": [32, 64, 512], "outside": "pad"}, (32, 512), 64),
        ({"buckets": [32, 64], "outside": "route", "max": 1024}, (1, 1024), 32),
        ({"buckets": [32, 64], "outside": "route", "multiple_of": 32, "max": 1024}, (32, 1024), 64),
        ({"buckets": [4, 6]}, (4, 6), 4),
    ],
    ids=str,
)
def test_compiled_sizes_and_the_optimal_one(
    text: Json, compiled: tuple[int, int], optimal: int
) -> None:
    assert read(text).compiled_bounds() == compiled
    assert read(text).optimal() == optimal


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (3, {3}),
        (0, {0}),
        ("2..5", {2, 3, 4, 5}),
        ({"min": 4, "max": 12, "multiple_of": 4}, {4, 8, 12}),
        ({"min": 3, "max": 8, "multiple_of": 4, "outside": "pad"}, {3, 4, 5, 6, 7, 8}),
        ({"buckets": [4, 8]}, {4, 8}),
        ({"buckets": [4, 8], "min": 3, "outside": "pad"}, {3, 4, 5, 6, 7, 8}),
        ({"buckets": [4, 8], "outside": "route", "max": 10}, set(range(1, 11))),
        ({"buckets": [4, 8], "outside": "route", "multiple_of": 4, "max": 12}, {4, 8, 12}),
        ({"buckets": [2], "min": 0, "outside": "pad"}, {1, 2}),
    ],
    ids=str,
)
def test_which_sizes_callers_may_pass(text: Json, allowed: set[int]) -> None:
    assert {size for size in range(20) if read(text).allows(size)} == allowed


def test_one_size_is_fixed_unless_it_is_probed() -> None:
    assert read(8).is_fixed()
    assert read({"buckets": [8]}).is_fixed()
    assert not read("1..8").is_fixed()
    assert not read({"buckets": [8], "outside": "pad"}).is_fixed()
    assert not read({"multiple_of": UNBOUNDED}).is_fixed()


# -- random ranges


@given(ranges(), st.booleans())
def test_random_ranges_survive_writing(made: DimRange, full: bool) -> None:
    assert decode(DimRange, encode(made, full=full)) == made


@given(st.dictionaries(st.sampled_from(["batch", "seq", "x.0"]), ranges()), st.booleans())
def test_random_ranges_survive_within_a_profile(dims: Mapping[str, DimRange], full: bool) -> None:
    made = Profile(schema="aotc.profile/1", name="mine", dims=dims, max_variants=256)
    assert decode(Profile, encode(made, full=full)).dims == dims


@given(ranges())
def test_the_optimal_size_and_the_ends_are_allowed(made: DimRange) -> None:
    low, high = made.compiled_bounds()
    assert made.min <= low <= made.optimal() <= high <= made.max
    assert made.allows(made.optimal())
    assert made.allows(low) and made.allows(high)


@given(ranges().filter(lambda made: made.bounded))
def test_an_artifact_accepts_what_its_profile_allows(made: DimRange) -> None:
    dim = domain_of(n=made).dims["n"]
    for size in range(1, made.max + 2):
        beyond = bool(made.buckets) and size > made.buckets[-1] and size % made.multiple_of != 0
        if not beyond:
            assert dim.accepts(size) == made.allows(size), size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ({"min": 0, "max": 2, "outside": "pad"}, 0),
        ({"buckets": [4], "multiple_of": 4, "max": 8, "outside": ["pad", "route"]}, 5),
    ],
    ids=["no elements", "off the grid above the largest bucket"],
)
def test_an_artifact_accepts_what_its_profile_allows_at_the_edges(text: Json, size: int) -> None:
    made = read(text)
    assert domain_of(n=made).dims["n"].accepts(size) == made.allows(size)


def test_the_largest_compiled_size_is_on_the_grid() -> None:
    made = read({"buckets": [4], "multiple_of": 4, "max": 10, "outside": "route"})
    assert made.allows(made.compiled_bounds()[1])
