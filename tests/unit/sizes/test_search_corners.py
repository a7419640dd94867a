"""Corner cases of the search for sizes: many dims, odd names, even sums, and range ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_values import value
from plain_manifest import manifest
from test_shape_claims import Searched, Sizes, ranges, relations

from aotc.base.errors import AotcError
from aotc.graph.symbols import symbols_of
from aotc.runtime.guards import Guard
from aotc.sizes.dim_hints import DimHints, candidates
from aotc.sizes.relations import Mover
from aotc.sizes.runs import input_bytes
from aotc.sizes.stated_relations import RelationCheck
from aotc.sizes.trials import TRIED, TRYING, FinishedRun, Trial, TrialLog, Trials, read_leftovers
from aotc.spec.payload import Value
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import Dim, DimRange, Domain, Relation


def dissimilar_names(count: int) -> list[str]:
    """Names of dims that are all dissimilar."""
    return [f"{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(count)]


@pytest.mark.parametrize("every", [2, 3, 4])
def test_dims_whose_sum_is_even_follow_from_none(every: int) -> None:
    """They move together by 1, and neither alone: as an equality does."""
    inputs = (value("x", 2, "a"), value("y", 2, "b"))
    found = Searched(inputs, lambda s: min(s.values()) > 0 and (s["a"] - s["b"]) % every == 0)
    assert not any(relations(found.domain()).values())


def test_ways_to_move_end_with_the_runs() -> None:
    """Of many dims the ways are too many to be thought of, let alone to be run."""
    asked = 0

    class Counted(Trials):
        def complete(self, sizes, found=()):  # type: ignore[no-untyped-def]
            nonlocal asked
            asked += 1
            return super().complete(sizes, found)

    trials = Counted(
        dims=dissimilar_names(300),
        limits=ProbeLimits(max_runs=500, max_size=1024),
        trial=lambda sizes: Trial(ok=set(sizes.values()) == {64}),
        late=lambda: False,
    )
    moves = Mover(trials, dict.fromkeys(trials.dims, 64), DimHints()).moves(trials.dims)
    assert set(moves.values()) == {None}
    assert asked < 10 * 500


def test_combinations_that_are_too_large_end() -> None:
    for count in (4, 40):
        inputs = [value(dim, 1024, dim, 512) for dim in dissimilar_names(count)]
        search = Searched(inputs, lambda s: max(s.values()) == 1, limits=ProbeLimits(max_size=1024))
        assert search.prober().base() == dict.fromkeys(dissimilar_names(count), 1)


def test_a_name_of_many_digits_is_no_size() -> None:
    name = "9" * 5000
    first = next(candidates((name,), DimHints(), {}, ()))
    assert first == {name: 64}


# -- stated dims that follow from others by what is no law
ROWS = (value("ids", "batch", "seq"), value("mask", "rows", "total"))


def at_least(sizes: Sizes) -> bool:
    """The mask may have more rows than there are ids."""
    return min(sizes.values()) > 0 and sizes["rows"] >= sizes["batch"]


def broadcast(sizes: Sizes) -> bool:
    return min(sizes.values()) > 0 and sizes["rows"] in (1, sizes["batch"])


def test_a_size_of_1_that_is_broadcast_is_seen_where_stated_ranges_begin_at_1() -> None:
    stated = {"batch": DimRange(min=1, max=8), "rows": DimRange(min=1, max=8)}
    found = Searched(ROWS, broadcast, stated=stated).domain()
    assert relations(found) == {"rows = batch": False}
    assert [relation.stated for relation in found.relations] == [True]


def test_a_dim_whose_grid_alone_is_stated_leads_what_is_equal_to_it() -> None:
    """It is never said that the model runs only where what is no law holds."""
    found = Searched(ROWS, at_least, stated={"rows": DimRange.from_json({"multiple_of": 8})})
    domain = found.domain()
    assert ranges(domain)["rows"] == (8, 1024, 8)
    assert relations(domain) == {"batch = rows": False}


def test_a_range_that_overrules_what_is_no_law_is_judged_by_runs() -> None:
    runs = {"more": DimRange(min=8, max=16), "else": DimRange(min=1, max=16)}
    stated = {"batch": DimRange(min=1, max=8)}
    found = Searched(ROWS, at_least, stated={**stated, "rows": runs["more"]}).domain()
    assert ranges(found)["rows"] == (8, 16, 1)
    with pytest.raises(AotcError) as refused:
        Searched(ROWS, at_least, stated={**stated, "rows": runs["else"]}).domain()
    assert refused.value.code == "AOTC-S005"


# -- calls off a relation that is no law
IDS = Value(name="ids", dtype="int64", shape=("batch", "seq"))
MASK = Value(name="mask", dtype="int64", shape=("rows", "seq"))


def guard(relation: Relation) -> Guard:
    dims = {"batch": Dim(min=1, max=8, opt=4, origin="stated"), "seq": Dim(min=1, max=8, opt=8)}
    return Guard(manifest(IDS, MASK, domain=Domain(dims=dims, relations=(relation,))))


def call(rows: int) -> dict[str, Any]:
    return {"ids": np.zeros((4, 4), np.int64), "mask": np.zeros((rows, 4), np.int64)}


def test_what_is_stated_of_a_dim_holds_though_the_relation_is_no_law() -> None:
    named = Relation(dim="rows", terms=("batch",), enforced=False, stated=True)
    assert not guard(named).check(call(4)).outside
    assert guard(named).check(call(7)).outside == ("rows",)
    with pytest.raises(AotcError) as refused:
        guard(named).check(call(9))
    assert (refused.value.code, refused.value.expected) == ("AOTC-S010", "1..8")
    # What nobody stated is counted.
    assert guard(replace(named, stated=False)).check(call(9)).outside == ("rows",)


@pytest.mark.parametrize(
    ("failed", "rows", "refused"),
    [
        ((("rows",),), 0, "rows >= 1"),
        ((("batch", "rows"),), 0, ""),
        ((("batch", "rows"),), 4, ""),
        ((), 0, ""),
    ],
)
def test_no_elements_are_refused_only_where_they_failed(
    failed: tuple[tuple[str, ...], ...], rows: int, refused: str
) -> None:
    domain = Domain(
        dims={
            "batch": Dim(min=0, max=8, opt=4),
            "rows": Dim(min=0, max=8, opt=4),
            "seq": Dim(min=1, max=8, opt=8),
        },
        not_empty=failed,
    )
    judge = Guard(manifest(IDS, MASK, domain=domain))
    if not refused:
        assert not judge.check(call(rows)).outside
        return
    with pytest.raises(AotcError) as caught:
        judge.check(call(rows))
    assert (caught.value.code, caught.value.expected) == ("AOTC-R010", refused)


def test_both_empty_are_refused_where_both_failed() -> None:
    dims = {"batch": Dim(min=0, max=8, opt=4), "rows": Dim(min=0, max=8, opt=4)}
    judge = Guard(manifest(IDS, MASK, domain=Domain(dims=dims, not_empty=(("batch", "rows"),))))
    inputs = {"ids": np.zeros((0, 4), np.int64), "mask": np.zeros((0, 4), np.int64)}
    with pytest.raises(AotcError) as caught:
        judge.check(inputs)
    assert (caught.value.where, caught.value.expected) == (
        "dim batch, rows",
        "batch >= 1 or rows >= 1",
    )


def test_a_size_of_0_that_was_not_tried_is_counted() -> None:
    dims = {"batch": Dim(min=1, max=8, opt=4), "seq": Dim(min=1, max=8, opt=8)}
    judge = Guard(manifest(IDS, MASK, domain=Domain(dims=dims)))
    inputs = {"ids": np.zeros((0, 4), np.int64), "mask": np.zeros((4, 4), np.int64)}
    assert judge.check(inputs).outside == ("batch",)


# -- what a process that was ended leaves
def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    log = TrialLog(tmp_path, ())
    log.begin({"n": 3}, 0.5)
    log.add({"n": 2}, 0, FinishedRun(Trial(ok=True), ((2, 3),)))
    assert read_leftovers(tmp_path)[:2] == ({"n": 3}, 0.5)
    done = read_leftovers(tmp_path)[2]
    with (tmp_path / TRIED).open("a") as file:
        file.write('{"sizes": {"n": 3}, "val')
    (tmp_path / TRYING).write_text('{"sizes": {"n"')
    assert read_leftovers(tmp_path) == ({}, 0.0, done)
    assert TrialLog(tmp_path, done).done({"n": 2}, 0) == FinishedRun(Trial(ok=True), ((2, 3),))


def test_a_statement_is_held_against_runs_of_inputs_that_are_weighed() -> None:
    symbols = symbols_of(["g = a"], [value("x", *"abcdef"), value("y", "g")])
    most, tried = 1 << 20, []

    def trial(sizes: Sizes) -> Trial:
        tried.append(input_bytes(symbols.declared, sizes))
        return Trial(ok=False, error="no")

    limits = ProbeLimits(max_input_bytes=most, max_size=1024)
    RelationCheck(symbols, trial, limits, lambda: False).refuse_wrong({})
    assert tried
    assert max(tried) <= most


# -- boxes and grids
def test_a_grid_that_is_stated_is_tried_first() -> None:
    """No usual size is a multiple of 37."""
    stated = {"n": DimRange.from_json({"multiple_of": 37})}
    for off in ("", "m"):
        inputs = (value("x", 1, "n"), *(value("y", 1, dim) for dim in off))
        found = Searched(inputs, lambda s: s["n"] > 0 and s["n"] % 37 == 0, stated=stated).domain()
        assert ranges(found)["n"] == (37, 999, 37)


def test_of_many_corners_that_fail_the_first_are_told() -> None:
    names = dissimilar_names(30)
    inputs = [value(name, 3, name, axis + 2) for axis, name in enumerate(names)]
    search = Searched(inputs, lambda s: 0 < max(s.values()) < 8 * min(s.values()))
    prober = search.prober()
    prober.search()
    told = [finding for finding in prober.findings if finding.code == "AOTC-S013"]
    assert len(told) == 13
    assert told[-1].what == "48 more corners do not run together"
