"""The search for working sizes, against models that are predicates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from aotc.base.errors import AotcError
from aotc.base.progress import Count
from aotc.cli.progress import counted, share
from aotc.sizes.dim_hints import DimHints, hints_on
from aotc.sizes.search import Prober
from aotc.sizes.trials import Trial, TrialLog, runs_so_far
from aotc.spec.payload import Value
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import DimRange, Domain, Relation

Sizes = Mapping[str, int]


def prober_of(
    dims: Sequence[str],
    runs: Callable[[Sizes], bool],
    *,
    leading: Sequence[str] = (),
    hints: DimHints | None = None,
    stated: Mapping[str, DimRange] | None = None,
    limits: ProbeLimits | None = None,
    flops: Callable[[Sizes], float] = lambda sizes: 0.0,
    empty: Callable[[Sizes], bool] = lambda sizes: 0 in sizes.values(),
    relations: Sequence[Relation] = (),
    work: Callable[[Sizes], float] = lambda sizes: 0.0,
) -> Prober:
    def trial(sizes: Sizes) -> Trial:
        if runs(sizes):
            return Trial(ok=True, empty=empty(sizes))
        return Trial(ok=False, error="no")

    def cost(_: Sequence[Sizes]) -> Any:
        return lambda sizes: (0, 0, flops(sizes))

    return Prober(
        dims=dims,
        hints=hints or DimHints(leading=frozenset(leading)),
        stated=stated or {},
        limits=limits or ProbeLimits(max_size=1024),
        trial=trial,
        late=lambda: False,
        cost=cost,
        work=work,
        relations=relations,
    )


def search(dims: Sequence[str], runs: Callable[[Sizes], bool], **options: Any) -> Domain:
    return prober_of(dims, runs, **options).search()


def bounds(domain: Domain) -> dict[str, tuple[int, int, int]]:
    return {name: (dim.min, dim.max, dim.multiple_of) for name, dim in domain.dims.items()}


def test_a_free_dim_is_proven_up_to_the_limit_of_size() -> None:
    domain = search(["n"], lambda s: s["n"] > 0)
    assert bounds(domain) == {"n": (1, 1024, 1)}
    assert domain.dims["n"].stopped_by == "size"


@pytest.mark.parametrize("most", [1, 2, 3, 63, 64, 65, 100, 512, 1000])
def test_the_largest_size_that_runs_is_found_exactly(most: int) -> None:
    domain = search(["n"], lambda s: 1 <= s["n"] <= most)
    assert bounds(domain) == {"n": (1, most, 1)}
    assert domain.dims["n"].stopped_by == "error"


@pytest.mark.parametrize("least", [1, 2, 3, 50, 96, 192])
def test_the_smallest_size_that_runs_is_found_exactly(least: int) -> None:
    assert bounds(search(["n"], lambda s: s["n"] >= least))["n"][0] == least


@pytest.mark.parametrize("size", [1, 5, 48, 224, 512, 576])
def test_a_dim_that_works_at_one_size_only(size: int) -> None:
    assert bounds(search(["n"], lambda s: s["n"] == size)) == {"n": (size, size, 1)}


@pytest.mark.parametrize("step", [2, 3, 4, 8, 16, 32])
def test_a_dim_that_must_be_a_multiple(step: int) -> None:
    found = search(["n"], lambda s: s["n"] > 0 and s["n"] % step == 0).dims["n"]
    assert (found.min, found.multiple_of) == (step, step)
    assert found.max == 1024 // step * step


def test_size_0_is_in_the_range_where_it_runs_and_refused_where_it_fails() -> None:
    domain = search(["n"], lambda s: True)
    assert (bounds(domain), domain.not_empty) == ({"n": (0, 1024, 1)}, ())
    assert 0 in domain.dims["n"].tested
    domain = search(["n"], lambda s: s["n"] > 0)
    assert (bounds(domain), domain.not_empty) == ({"n": (1, 1024, 1)}, (("n",),))


def test_what_fails_only_if_both_are_empty_is_known_as_that() -> None:
    domain = search(["a", "b"], lambda s: sum(s.values()) > 0)
    assert bounds(domain) == {"a": (0, 1024, 1), "b": (0, 1024, 1)}
    assert domain.not_empty == (("a", "b"),)
    assert [sorted(s.values())[0] for s in domain.empty_corners()] == [0, 0]


def test_size_0_is_not_claimed_where_other_small_sizes_fail() -> None:
    domain = search(["n"], lambda s: s["n"] == 0 or s["n"] >= 50)
    assert (bounds(domain), domain.not_empty) == ({"n": (50, 1024, 1)}, ())


@pytest.mark.parametrize("count", [3, 6])
def test_combinations_of_empty_dims_are_few(count: int) -> None:
    names = "abcdef"[:count]
    tried: list[Sizes] = []

    def runs(sizes: Sizes) -> bool:
        tried.append(sizes)
        return sizes["a"] + sizes["b"] > 0

    domain = search(list(names), runs)
    assert all(dim.min == 0 for dim in domain.dims.values())
    assert domain.not_empty == (("a", "b"),)
    assert len([sizes for sizes in tried if 0 in sizes.values()]) <= count + 28 + 1


def test_two_names_that_must_be_equal() -> None:
    domain = search(["a", "b"], lambda s: s["a"] == s["b"] > 0)
    assert [str(relation) for relation in domain.relations] == ["b = a"]
    assert bounds(domain) == {"a": (1, 1024, 1)}
    assert domain.corner("max") == {"a": 1024, "b": 1024}


def test_three_names_that_must_be_equal() -> None:
    domain = search(["a", "b", "c"], lambda s: s["a"] == s["b"] == s["c"] > 0)
    assert len(domain.dims) == 1
    assert set(domain.corner("opt").values()) == {128}


def test_a_dim_that_is_the_sum_of_two_others() -> None:
    domain = search(
        ["batch", "new", "total", "past"],
        lambda s: s["total"] == s["new"] + s["past"] and s["new"] > 0 and s["batch"] > 0,
        hints=DimHints(leading=frozenset({"batch"})),
    )
    assert [str(relation) for relation in domain.relations] == ["total = new + past"]
    assert bounds(domain)["past"] == (0, 1024, 1)
    assert domain.corner("min") == {"batch": 1, "new": 1, "past": 0, "total": 1}
    assert domain.corner("least") == {"batch": 1, "new": 1, "past": 1, "total": 2}


def test_a_range_with_gaps_becomes_a_grid() -> None:
    # Pooling rounds down and up: 64, 65 and 1024 run, most sizes between do not.
    domain = search(["n"], lambda s: s["n"] > 0 and (s["n"] % 32 == 0 or s["n"] in (1, 65)))
    assert bounds(domain) == {"n": (32, 1024, 32)}


def test_gaps_that_no_grid_avoids_are_told() -> None:
    most = search(["n"], lambda s: s["n"] > 0 and s["n"] // 100 % 4 != 3).dims["n"]
    assert 318 in most.gaps
    assert not set(most.gaps) & set(most.tested)


def test_a_few_sizes_that_run_in_a_range_are_no_range() -> None:
    few = search(["n"], lambda s: s["n"] in (1, 64, 65, 128, 256, 512, 1024)).dims["n"]
    assert (few.min, few.max, few.gaps) == (64, 65, ())


def test_batches_give_way_where_the_box_is_too_costly() -> None:
    domain = search(
        ["batch", "length"],
        lambda s: min(s.values()) > 0 and s["length"] <= 512,
        leading=["batch"],
        limits=ProbeLimits(max_flops=256, max_size=1024),
        flops=lambda s: float(s["batch"] * s["length"]),
    )
    assert bounds(domain)["length"] == (1, 256, 1)
    assert domain.dims["batch"].max == 1
    assert domain.dims["batch"].stopped_by == "flops"


def test_the_optimum_of_a_batch_is_its_smallest_size() -> None:
    domain = search(["batch", "n"], lambda s: min(s.values()) > 0, leading=["batch"])
    assert domain.corner("opt") == {"batch": 1, "n": 128}


def test_nothing_runs() -> None:
    with pytest.raises(AotcError) as caught:
        search(["n"], lambda s: False)
    assert caught.value.code == "AOTC-S001"
    assert caught.value.found == "no"


def test_a_stated_size_that_does_not_run() -> None:
    with pytest.raises(AotcError) as caught:
        search(["n"], lambda s: 0 < s["n"] <= 4, stated={"n": DimRange(min=1, max=8, opt=2)})
    assert caught.value.code == "AOTC-S005"
    assert caught.value.what == "the largest stated sizes do not run: n=8"
    assert caught.value.expected == "n runs at 1..4"


def test_equal_dims_that_are_stated_differently() -> None:
    stated = {"a": DimRange(min=1, max=8), "b": DimRange(min=1, max=4)}
    with pytest.raises(AotcError) as caught:
        search(["a", "b"], lambda s: s["a"] == s["b"] > 0, stated=stated)
    assert caught.value.code == "AOTC-S011"
    assert (caught.value.expected, caught.value.found) == ("1..8", "1..4")


def test_an_unnamed_dim_that_follows_a_stated_one() -> None:
    domain = search(
        ["a", "b"], lambda s: s["a"] == s["b"] > 0, stated={"a": DimRange(min=1, max=8)}
    )
    assert [str(relation) for relation in domain.relations] == ["b = a"]
    assert domain.corner("max") == {"a": 8, "b": 8}


def test_the_count_of_runs_is_bounded() -> None:
    count = 0

    def runs(_: Sizes) -> bool:
        nonlocal count
        count += 1
        return False

    with pytest.raises(AotcError):
        search(["a", "b", "c"], runs, limits=ProbeLimits(max_runs=50, max_size=1024))
    assert count <= 50


def test_the_same_search_twice_is_the_same() -> None:
    def once() -> Domain:
        return search(["a", "b"], lambda s: s["a"] % 4 == 0 and 0 < s["b"] < 300 and s["a"] > 0)

    assert once() == once()


@pytest.mark.parametrize("most", range(1, 80, 3))
def test_a_search_that_may_not_go_on_keeps_what_it_has(most: int) -> None:
    domain = search(
        ["p", "q", "r"],
        lambda s: min(s.values()) >= 0,
        limits=ProbeLimits(max_runs=most, max_size=1024),
    )
    for which in ("min", "opt", "max"):
        assert min(domain.corner(which).values()) >= 0


# -- stated relations
TOTAL = Relation(dim="total", terms=("past", "new"))


def adds(sizes: Sizes) -> bool:
    return sizes["total"] == sizes["past"] + sizes["new"] and sizes["new"] > 0


def test_a_dim_that_is_stated_to_follow_is_not_searched_for() -> None:
    prober = prober_of(["new", "total", "past"], adds, relations=[TOTAL])
    domain = prober.search()
    assert domain.relations == (TOTAL,)
    assert bounds(domain) == {"new": (1, 1024, 1), "past": (0, 1024, 1)}
    tried = search(["new", "total", "past"], adds)
    assert bounds(tried) == bounds(domain)
    assert prober.findings == ()


def test_relations_that_were_found_come_before_stated_ones() -> None:
    domain = search(
        ["total", "a", "b", "new", "past"],
        lambda s: adds(s) and s["a"] == s["b"] > 0,
        relations=[TOTAL],
    )
    assert [str(relation) for relation in domain.relations] == ["b = a", "total = past + new"]
    assert domain.corner("max")["total"] == 2048


def test_sizes_that_would_follow_as_negative_are_never_run() -> None:
    tried: list[Sizes] = []

    def runs(sizes: Sizes) -> bool:
        tried.append(sizes)
        return sizes["x"] == sizes["a"] - 5 and sizes["x"] > 0

    domain = search(["a", "x"], runs, relations=[Relation(dim="x", terms=("a",), constant=-5)])
    assert bounds(domain) == {"a": (6, 1024, 1)}
    assert min(size for sizes in tried for size in sizes.values()) >= 0


def test_a_derived_dim_may_be_bounded_alike() -> None:
    stated = {"new": DimRange(min=1, max=8), "past": DimRange(min=0, max=32)}
    alike = {**stated, "total": DimRange(min=1, max=40)}
    domain = search(["new", "total", "past"], adds, stated=alike, relations=[TOTAL])
    assert bounds(domain) == {"new": (1, 8, 1), "past": (0, 32, 1)}
    other = {**stated, "total": DimRange(min=1, max=64)}
    error = refusal(search, ["new", "total", "past"], adds, stated=other, relations=[TOTAL])
    assert (error.code, error.where) == ("AOTC-S011", "total")
    assert (error.expected, error.found) == ("1..40", "1..64")
    assert error.fix == "State the ranges of past, new alone."


def test_a_derived_dim_that_is_bounded_and_its_terms_are_not() -> None:
    error = refusal(
        search, ["new", "total", "past"], adds, stated={"total": DimRange(min=1, max=64)}
    )
    assert error.code == "AOTC-S011"
    assert (error.expected, error.found) == ("2..2048", "1..64")


def test_equal_dims_with_buckets_each_are_refused() -> None:
    spec = DimRange.from_json({"buckets": [4, 8]})
    error = refusal(search, ["a", "b"], lambda s: s["a"] == s["b"], stated={"a": spec, "b": spec})
    assert error.code == "AOTC-S011"
    assert error.found == "4..8 with buckets 4, 8"
    assert error.fix == "State 'b = a' under relations, and the range of 'a' alone."


def test_equal_dims_whose_ranges_do_not_meet() -> None:
    stated = {"a": DimRange(min=1, max=4), "b": DimRange(min=8, max=16)}
    error = refusal(search, ["a", "b"], lambda s: s["a"] == s["b"] > 0, stated=stated)
    assert error.code == "AOTC-S011"
    assert error.what == "the model runs only where a = b"
    assert (error.expected, error.found) == ("8..16", "1..4")


# -- refusals found by running
@pytest.mark.parametrize("leading", [[], ["n"]])
def test_a_stated_range_of_which_one_size_runs(leading: list[str]) -> None:
    stated = {"n": DimRange(min=16, max=128)}
    error = refusal(search, ["n"], lambda s: s["n"] == 48, stated=stated, leading=leading)
    assert (error.code, error.where) == ("AOTC-S016", "n")
    assert error.what == "the model runs only where n is 48"
    assert (error.expected, error.found) == ("48", "16..128")


def test_a_stated_size_that_is_not_the_one_that_runs() -> None:
    error = refusal(search, ["n"], lambda s: s["n"] == 48, stated={"n": DimRange(min=64, max=64)})
    assert error.code == "AOTC-S005"
    assert error.expected == "n runs at 48"


def test_a_stated_range_off_the_grid_tells_the_grid() -> None:
    stated = {"h": DimRange(min=32, max=100)}
    error = refusal(
        search, ["b", "h"], lambda s: s["b"] > 0 and s["h"] % 32 == 0 < s["h"], stated=stated
    )
    assert error.code == "AOTC-S005"
    assert error.where == "h"
    assert error.expected == "h runs at 32..1024 in steps of 32, and maybe beyond"


@pytest.mark.parametrize("outside", [[], ["pad"], ["route"], ["pad", "route"]])
def test_a_bucket_beyond_the_model_is_named(outside: list[str]) -> None:
    spec = DimRange.from_json({"buckets": [16, 64, 640], "outside": outside or "reject"})
    error = refusal(
        search, ["b", "n"], lambda s: 0 < s["n"] <= 512 and s["b"] > 0, stated={"n": spec}
    )
    assert error.code == "AOTC-S005"
    assert error.what.endswith("does not run: b=64, n=640")
    assert error.expected == "n runs at 1..512"


def test_a_bucket_in_the_middle_is_run_too() -> None:
    spec = DimRange.from_json({"buckets": [32, 48, 64]})
    error = refusal(search, ["n"], lambda s: s["n"] % 32 == 0 < s["n"], stated={"n": spec})
    assert error.what == "bucket 48 of n does not run: n=48"
    assert error.expected == "n runs at 32..1024 in steps of 32, and maybe beyond"


def test_stated_buckets_are_all_tested() -> None:
    spec = DimRange.from_json({"buckets": [4, 8, 16], "max": 100, "outside": ["pad", "route"]})
    tried: list[int] = []

    def runs(sizes: Sizes) -> bool:
        tried.append(sizes["n"])
        return sizes["n"] > 0

    dim = search(["n"], runs, stated={"n": spec}).dims["n"]
    assert (dim.min, dim.max, dim.opt, dim.buckets) == (1, 100, 8, (4, 8, 16))
    assert (dim.pad_from, dim.outside, dim.origin) == (1, ("pad", "route"), "stated")
    assert dim.tested == (1, 4, 8, 16, 100)
    assert set(dim.tested) <= set(tried)


def test_padded_sizes_below_the_first_bucket_need_not_run() -> None:
    spec = DimRange.from_json({"buckets": [32, 64], "outside": "pad"})
    dim = search(["n"], lambda s: s["n"] % 32 == 0 < s["n"], stated={"n": spec}).dims["n"]
    assert (dim.min, dim.max, dim.pad_from) == (32, 64, 1)


def test_a_diagnosis_is_bounded() -> None:
    count = 0

    def runs(sizes: Sizes) -> bool:
        nonlocal count
        count += 1
        return count == 1

    refusal(search, ["a", "b", "c"], runs, stated={"a": DimRange(min=1, max=9)})
    assert count <= 400 + 160


# -- mixed corners
def test_stated_sizes_that_do_not_run_together() -> None:
    stated = {"a": DimRange(min=1, max=16), "b": DimRange(min=1, max=16)}
    error = refusal(search, ["a", "b"], lambda s: s["a"] < 16 or s["b"] > 1, stated=stated)
    assert error.code == "AOTC-S005"
    assert error.what == "stated sizes do not run together: a=16, b=1"


def test_a_probed_bound_gives_way_at_a_mixed_corner() -> None:
    # At the base (64, 64) each dim alone is free; far apart they do not run.
    def runs(sizes: Sizes) -> bool:
        return min(sizes.values()) > 0 and sizes["a"] - sizes["b"] <= 1000

    domain = search(["a", "b"], runs)
    assert bounds(domain) == {"a": (1, 512, 1), "b": (1, 1024, 1)}
    assert domain.dims["a"].stopped_by == "combined"


def test_a_mixed_corner_that_never_runs_is_told() -> None:
    def runs(sizes: Sizes) -> bool:
        return min(sizes.values()) > 0 and (sizes["a"] < 65 or sizes["b"] > 1)

    prober = prober_of(["a", "b"], runs)
    assert bounds(prober.search()) == {"a": (1, 1024, 1), "b": (1, 1024, 1)}
    (finding,) = prober.findings
    assert finding.code == "AOTC-S013"
    assert finding.where == "a=1024, b=1"


def test_with_many_dims_one_at_a_time_goes_to_its_end() -> None:
    tried: list[tuple[int, ...]] = []
    stated = {name: DimRange(min=1, max=9, opt=3) for name in "abcde"}

    def runs(sizes: Sizes) -> bool:
        tried.append(tuple(sizes.values()))
        return min(sizes.values()) > 0

    search(list("abcde"), runs, stated=stated)
    corners = {sizes for sizes in tried if set(sizes) == {1, 9}}
    assert len(corners) == 10
    assert (9, 1, 1, 1, 1) in corners
    assert (1, 9, 9, 9, 9) in corners


# -- only the grid is stated
def grid(**fields: Any) -> DimRange:
    return DimRange.from_json({"multiple_of": 8, **fields})


def test_a_range_that_states_the_grid_alone_is_probed() -> None:
    dim = search(["n"], lambda s: 0 < s["n"] <= 100, stated={"n": grid()}).dims["n"]
    assert (dim.min, dim.max, dim.multiple_of, dim.origin) == (8, 96, 8, "stated")
    assert dim.opt == 96
    assert all(size % 8 == 0 for size in dim.tested)


def test_the_stated_grid_and_the_models_own_meet() -> None:
    stated = {"n": DimRange.from_json({"multiple_of": 5})}
    dim = search(["n"], lambda s: s["n"] % 32 == 0 < s["n"], stated=stated).dims["n"]
    assert (dim.min, dim.max, dim.multiple_of) == (160, 960, 160)


def test_a_grid_that_pads() -> None:
    dim = search(["n"], lambda s: s["n"] > 0, stated={"n": grid(outside="pad", opt=64)}).dims["n"]
    assert (dim.min, dim.max, dim.opt, dim.pad_from) == (8, 1024, 64, 1)
    assert (dim.padded_size(13), dim.allows(13), dim.padded_size(5)) == (16, False, 8)


def test_no_multiple_runs() -> None:
    error = refusal(search, ["n"], lambda s: 0 < s["n"] < 8, stated={"n": grid()})
    assert (error.code, error.what, error.where) == ("AOTC-S005", "no multiple of 8 runs", "n")
    assert error.expected == "n runs at 1..7"
    error = refusal(search, ["n"], lambda s: 0 < s["n"] < 99, stated={"n": grid(opt=512)})
    assert error.what == "the optimal size 512 does not run"


@pytest.mark.parametrize("most", range(1, 80, 3))
def test_a_search_that_may_not_go_on_stays_on_the_grid(most: int) -> None:
    domain = search(
        ["p", "q"],
        lambda s: min(s.values()) > 0,
        stated={"q": grid()},
        limits=ProbeLimits(max_runs=most, max_size=1024),
    )
    assert domain.dims["q"].min % 8 == domain.dims["q"].max % 8 == 0


def test_dims_of_one_kind_that_move_as_one_are_equal() -> None:
    """As four inputs `[batch, sequence]` of an encoder, each with names of its own."""
    names = [f"{name}{axis}" for name in "abcd" for axis in (0, 1)]
    labels = {name: f"int64[?,?].{name[1]}" for name in names}
    found = search(
        names,
        lambda s: all(len({s[n] for n in names if n[1] == axis}) == 1 for axis in "01"),
        hints=DimHints(leading=frozenset(n for n in names if n[1] == "0"), labels=labels),
    )
    assert set(found.dims) == {"a0", "a1"}
    assert sorted(map(str, found.relations)) == [
        f"{name}{axis} = a{axis}" for name in "bcd" for axis in (0, 1)
    ]


@pytest.mark.parametrize("step", [10, 14, 28, 77, 160, 320])
def test_a_step_divides_the_first_size_that_runs(step: int) -> None:
    sizes = [size for size in range(1, 2000) if size % step == 0]
    found = search(["samples"], lambda s: s["samples"] in sizes, hints=DimHints(sizes=(step,)))
    dim = found.dims["samples"]
    assert (dim.min, dim.multiple_of, dim.max % step, dim.gaps) == (step, step, 0, ())
    assert dim.max > 4 * step or dim.max + step > 1024


def test_windows_of_7_after_a_stride_of_4_leave_no_gaps() -> None:
    """Windows fit where a quarter of the size, rounded down, is a multiple of 7."""
    found = search(["height"], lambda s: s["height"] >= 28 and s["height"] // 4 % 7 == 0)
    dim = found.dims["height"]
    assert (dim.multiple_of, dim.gaps) == (28, ())
    assert dim.max >= 448


def test_a_token_more_is_a_relation_that_an_error_speaks_of() -> None:
    """A mask that is longer than what it masks, by a token that the model puts in front."""

    def trial(sizes: Sizes) -> Trial:
        ok = min(sizes.values()) > 0 and sizes["mask"] in (1, sizes["text"] + 1)
        text = f"Attempting to broadcast an axis: {sizes['text'] + 1} by {sizes['mask']}"
        return Trial(ok=ok, error="" if ok else text)

    prober = prober_of(["text", "mask"], lambda _: False)
    prober.trial = trial
    prober.__post_init__()
    found = prober.search()
    assert [str(relation) for relation in found.relations] == ["mask = text + 1"]
    assert found.dims["text"].max == 1024


def test_images_of_one_size_beside_texts_of_a_limit() -> None:
    """As two towers, of 224 by 224 pixels and at most 77 tokens."""
    hints = DimHints(leading=frozenset("nm"), images=(("h", "w"),))
    found = search(
        ["n", "seq", "m", "h", "w"],
        lambda s: s["h"] == s["w"] == 224 and 0 < s["seq"] <= 77 and min(s["n"], s["m"]) > 0,
        hints=hints,
    )
    assert (found.dims["h"].max, found.dims["seq"].max) == (224, 77)


def test_a_product_is_no_law_of_sums() -> None:
    """Elements of a vector that is shaped as a matrix: at one row it is as long as a row."""
    found = search(["n", "m", "k"], lambda s: s["n"] * s["m"] == s["k"] > 0, leading=["n"])
    assert found.relations
    assert not any(relation.enforced for relation in found.relations)


def test_a_cache_that_grows_says_what_its_length_is_the_sum_of() -> None:
    """As fused attention has it: more than one token beside a past runs for a batch of 1 alone.

    It also runs where the past is not read, which is found first without that hint.
    """
    ids = Value(name="ids", kind="tensor", dtype="int64", shape=("batch", "seq"))
    mask = Value(name="mask", kind="tensor", dtype="int64", shape=("batch", "total"))
    past = Value(name="past", kind="tensor", dtype="float32", shape=("batch", 2, "past", 8))
    made = Value(name="made", kind="tensor", dtype="float32", shape=("batch", 2, "total", 8))

    def runs(sizes: Sizes) -> bool:
        dynamic = sizes["total"] == sizes["past"] + sizes["seq"]
        allowed = sizes["batch"] == 1 or sizes["past"] == 0 or sizes["seq"] == 1
        unread = sizes["total"] == sizes["seq"] == sizes["past"]
        return min(sizes["batch"], sizes["seq"]) > 0 and (unread or (dynamic and allowed))

    hints = hints_on([ids, mask, past], [made])
    found = search(["batch", "seq", "total", "past"], runs, hints=hints)
    assert [str(relation) for relation in found.relations] == ["total = seq + past"]
    batch = found.dims["batch"]
    assert (batch.max, batch.stopped_by) == (1, "combined")  # more run without a past
    assert min(found.dims["seq"].max, found.dims["past"].max) == 1024


def test_other_batches_are_as_many_as_the_one_that_is_stated() -> None:
    names = ["age", "income", "clicks"]
    found = search(
        names,
        lambda s: len({s[name] for name in names}) == 1 and s["age"] > 0,
        leading=names,
        stated={"income": DimRange(min=1, max=16)},
    )
    assert (found.dims["income"].min, found.dims["income"].max) == (1, 16)
    assert {str(item) for item in found.relations} == {"age = income", "clicks = income"}


def test_dims_of_a_kind_start_at_the_size_that_is_stated_of_one() -> None:
    """Keys are stated and values are not; the mask is as long as all that is in the cache."""

    def trial(sizes: Sizes) -> Trial:
        ok = sizes["keys"] == sizes["values"] >= 0 < sizes["ids"]
        ok = ok and sizes["mask"] in (1, sizes["ids"] + sizes["keys"])
        text = f"broadcast: {sizes['ids'] + sizes['keys']} by {sizes['mask']}"
        return Trial(ok=ok, error="" if ok else text)

    stated = {"ids": DimRange(min=1, max=16), "keys": DimRange(min=1, max=64)}
    labels = {"keys": "float32[?,?,8].1", "values": "float32[?,?,8].1"}
    prober = prober_of(
        ["ids", "mask", "keys", "values"],
        lambda _: False,
        stated=stated,
        hints=DimHints(labels=labels),
    )
    prober.trial = trial
    prober.__post_init__()
    found = prober.search()
    assert {str(item) for item in found.relations} == {"mask = ids + keys", "values = keys"}


def test_most_of_a_range_that_fails_is_no_range_with_gaps() -> None:
    """As frames of which two are one position of a table of 1500, and one is broadcast."""

    def trial(sizes: Sizes) -> Trial:
        positions = -(-sizes["frames"] // 2)
        ok = sizes["frames"] > 0 and positions in (1, 1500)
        return Trial(ok=ok, error="" if ok else f"broadcast: {positions} by 1500")

    prober = prober_of(["batch", "frames"], lambda _: False, leading=["batch"])
    prober.trial = trial
    prober.__post_init__()
    frames = prober.search().dims["frames"]
    assert (frames.min, frames.max, frames.gaps, frames.stopped_by) == (2999, 3000, (), "error")


def test_moves_of_maps_are_found_at_half_their_sides_where_runs_are_heavy() -> None:
    hints = DimHints(
        leading=frozenset("n"), images=(("h", "w"),), maps=frozenset(("h", "w")), dense=True
    )
    tried: list[dict[str, int]] = []

    def runs(sizes: Sizes) -> bool:
        tried.append(dict(sizes))
        return not sizes["h"] % 4 and not sizes["w"] % 4 and min(sizes.values()) > 0

    def places(sizes: Sizes) -> float:
        return 1e4 * sizes["n"] * (sizes["h"] * sizes["w"]) ** 2

    light, heavy = (
        search(("n", "h", "w"), runs, hints=hints, work=lambda sizes, k=k: k * places(sizes))
        for k in (0.01, 1)
    )
    assert bounds(light) == bounds(heavy)
    assert bounds(heavy)["h"] == (4, 1024, 4)
    first = tried.index({"n": 3, "h": 64, "w": 64}, 1)
    one, other = (
        sum(max(sizes["h"], sizes["w"]) in range(60, 70) for sizes in part)
        for part in (tried[:first], tried[first:])
    )
    assert other < one


def test_a_search_tells_its_steps(tmp_path: Path) -> None:
    """Each once and in order; a watcher reads them where another process writes them."""
    log, poll = TrialLog(tmp_path, ()), runs_so_far(tmp_path)
    assert poll() == Count(0, None, "probes")
    told = []

    def step(number: int) -> None:
        log.step(number)
        told.append(poll())

    prober = prober_of(["n", "m"], lambda s: s["n"] > 0)
    prober.step = step
    prober.search()
    assert told == [Count(number, 8, "steps, 0 probes") for number in range(8)]
    assert counted(told[3]) == "3 of 8 steps, 0 probes"
    assert share(told[3:4]) == 0.375
