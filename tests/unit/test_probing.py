"""The search for working sizes, against models that are predicates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from aotc.contract.profile import ProbeLimits
from aotc.contract.shapes import DimRange, Domain
from aotc.engine.probing import Prober, Trial
from aotc.errors import AotcError

Sizes = Mapping[str, int]


def search(
    dims: Sequence[str],
    runs: Callable[[Sizes], bool],
    *,
    leading: Sequence[str] = (),
    stated: Mapping[str, DimRange] | None = None,
    limits: ProbeLimits | None = None,
    flops: Callable[[Sizes], float] = lambda sizes: 0.0,
    empty: Callable[[Sizes], bool] = lambda sizes: 0 in sizes.values(),
) -> Domain:
    def trial(sizes: Sizes) -> Trial:
        if runs(sizes):
            return Trial(ok=True, empty=empty(sizes))
        return Trial(ok=False, error="no")

    def cost(_: Sequence[Sizes]) -> Any:
        return lambda sizes: (0, 0, flops(sizes))

    return Prober(
        dims=dims,
        leading=frozenset(leading),
        stated=stated or {},
        limits=limits or ProbeLimits(),
        trial=trial,
        late=lambda: False,
        cost=cost,
    ).search()


def bounds(domain: Domain) -> dict[str, tuple[int, int, int]]:
    return {name: (dim.min, dim.max, dim.multiple_of) for name, dim in domain.dims.items()}


def test_a_free_dim_is_proven_up_to_the_limit_of_size() -> None:
    domain = search(["n"], lambda s: True)
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


def test_zero_counts_only_where_no_output_is_empty() -> None:
    assert bounds(search(["n"], lambda s: True, empty=lambda s: False))["n"][0] == 0
    assert bounds(search(["n"], lambda s: True))["n"][0] == 1


def test_two_names_that_must_be_equal() -> None:
    domain = search(["a", "b"], lambda s: s["a"] == s["b"] > 0)
    assert [str(relation) for relation in domain.relations] == ["b = a"]
    assert bounds(domain) == {"a": (1, 1024, 1)}
    assert domain.corner("max") == {"a": 1024, "b": 1024}


def test_three_names_that_must_be_equal() -> None:
    domain = search(["a", "b", "c"], lambda s: s["a"] == s["b"] == s["c"] > 0)
    assert len(domain.dims) == 1
    assert set(domain.corner("opt").values()) == {32}


def test_a_dim_that_is_the_sum_of_two_others() -> None:
    domain = search(
        ["batch", "new", "total", "past"],
        lambda s: s["total"] == s["new"] + s["past"] and s["new"] > 0 and s["batch"] > 0,
        leading=["batch"],
        empty=lambda s: s["new"] == 0 or s["batch"] == 0,
    )
    assert [str(relation) for relation in domain.relations] == ["total = new + past"]
    assert bounds(domain)["past"] == (0, 1024, 1)
    assert domain.corner("min") == {"batch": 1, "new": 1, "past": 0, "total": 1}


def test_a_range_with_gaps_becomes_a_grid() -> None:
    # Pooling rounds down and up: 64, 65 and 1024 run, most sizes between do not.
    domain = search(["n"], lambda s: s["n"] > 0 and (s["n"] % 32 == 0 or s["n"] in (1, 65)))
    assert bounds(domain) == {"n": (32, 1024, 32)}


def test_gaps_that_no_grid_avoids_are_told() -> None:
    primes = search(["n"], lambda s: s["n"] in (1, 64, 65, 128, 256, 512, 1024)).dims["n"]
    assert primes.gaps
    assert primes.opt in (1, 64, 65, 128, 256, 512, 1024)


def test_batches_give_way_where_the_box_is_too_costly() -> None:
    domain = search(
        ["batch", "length"],
        lambda s: min(s.values()) > 0 and s["length"] <= 512,
        leading=["batch"],
        limits=ProbeLimits(max_flops=1024),
        flops=lambda s: float(s["batch"] * s["length"]),
    )
    assert bounds(domain)["length"] == (1, 512, 1)
    assert domain.dims["batch"].max <= 2
    assert domain.dims["batch"].stopped_by == "work"


def test_the_optimum_of_a_batch_is_its_smallest_size() -> None:
    domain = search(["batch", "n"], lambda s: min(s.values()) > 0, leading=["batch"])
    assert domain.corner("opt") == {"batch": 1, "n": 32}


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
        search(["a", "b", "c"], runs, limits=ProbeLimits(max_runs=50))
    assert count <= 50


def test_the_same_search_twice_is_the_same() -> None:
    def once() -> Domain:
        return search(["a", "b"], lambda s: s["a"] % 4 == 0 and 0 < s["b"] < 300 and s["a"] > 0)

    assert once() == once()


@pytest.mark.parametrize("most", range(1, 80, 3))
def test_a_search_that_may_not_go_on_keeps_what_it_has(most: int) -> None:
    domain = search(
        ["p", "q", "r"], lambda s: min(s.values()) >= 0, limits=ProbeLimits(max_runs=most)
    )
    for which in ("min", "opt", "max"):
        assert min(domain.corner(which).values()) >= 0
