"""The chosen buckets are optimal: compared with trying all of them."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.spec.codec import ParseError, decode
from aotc.tools.learn_costs import Costs, CostTable, _new_size, _runnable_sizes, drift
from aotc.tools.learn_plans import (
    Plan,
    Traffic,
    best_buckets,
    best_grid,
    candidate_plans,
    candidate_sizes,
    choose_plan,
    powers_of_two,
    sizes_between,
)

COSTS = st.floats(0.1, 10, allow_nan=False)
WEIGHTS = st.integers(0, 9)


def brute_force(cost: Sequence[float], weight: Sequence[float], count: int) -> float:
    last = len(cost) - 1
    best = math.inf
    for inner in itertools.combinations(range(last), count - 1):
        chosen = (*inner, last)
        total = sum(
            each * cost[next(place for place in chosen if place >= index)]
            for index, each in enumerate(weight)
        )
        best = min(best, total)
    return best


@given(st.lists(st.tuples(COSTS, WEIGHTS), min_size=1, max_size=8), st.integers(1, 8))
def test_one_dim(rows: list[tuple[float, int]], most: int) -> None:
    cost, weight = [row[0] for row in rows], [float(row[1]) for row in rows]
    found = best_buckets(np.array(cost), np.array(weight), most)
    assert len(found) == min(most, len(cost))
    for count, chosen in enumerate(found, 1):
        assert len(chosen.indices) == count
        assert chosen.indices[-1] == len(cost) - 1
        assert chosen.cost == pytest.approx(brute_force(cost, weight, count))


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_two_dims(rows: int, columns: int, most: int, random) -> None:  # type: ignore[no-untyped-def]
    cost = np.array([[random.uniform(0.1, 9) for _ in range(columns)] for _ in range(rows)])
    weight = np.array([[float(random.randrange(5)) for _ in range(columns)] for _ in range(rows)])
    best: dict[int, float] = {}
    for first in _subsets(rows):
        for second in _subsets(columns):
            if len(first) * len(second) <= most:
                total = sum(
                    weight[r, c]
                    * cost[next(p for p in first if p >= r), next(p for p in second if p >= c)]
                    for r, c in itertools.product(range(rows), range(columns))
                )
                number = len(first) * len(second)
                best[number] = min(best.get(number, math.inf), total)
    found = best_grid(cost, weight, most)
    assert found[-1].cost == pytest.approx(min(best.values()))
    for grid in found:
        chosen = weight * cost[np.ix_(_up(grid.rows, rows), _up(grid.columns, columns))]
        assert grid.cost == pytest.approx(chosen.sum())
        assert len(grid.rows) * len(grid.columns) <= most


def _subsets(count: int) -> list[tuple[int, ...]]:
    inner = range(count - 1)
    return [
        (*chosen, count - 1)
        for size in range(count)
        for chosen in itertools.combinations(inner, size)
    ]


def _up(chosen: Sequence[int], count: int) -> list[int]:
    return [next(place for place in chosen if place >= index) for index in range(count)]


def test_candidates() -> None:
    assert candidate_sizes([3, 5, 9], 32) == (3, 4, 5, 8, 9)
    many = candidate_sizes(range(1, 513), 32)
    assert many == tuple(sorted({1, 2, 4, 8, *range(16, 513, 16)}))
    assert candidate_sizes([7], 32) == (7,)
    assert powers_of_two(3, 48) == (4, 8, 16, 32, 48)
    assert sizes_between({17: 5, 20: 9, 32: 50, 40: 1}, (16, 32, 48)) == (20, 40)


# -- on measurements recorded from a backend whose cost grows in steps
TABLE = decode(
    CostTable, json.loads((ROOT / "benchmarks/data/openvino-bert-base.costs.json").read_bytes())
)


def log_normal(requests: int = 4000) -> dict[tuple[int, ...], int]:
    """Lengths from 1 to 512, the median about 40."""
    lengths = np.exp(np.random.default_rng(0).normal(np.log(40), 0.9, requests))
    counts: dict[tuple[int, ...], int] = {}
    for length in np.clip(np.round(lengths), 1, 512).astype(int):
        counts[(int(length),)] = counts.get((int(length),), 0) + 1
    return counts


def test_a_stepped_backend_gets_buckets_and_the_right_ones() -> None:
    counts = log_normal()
    traffic = Traffic(counts, Costs(TABLE))
    found = candidate_plans(traffic, 8)
    chosen, margin = choose_plan(found, traffic)
    by_name = {(plan.name, plan.variants): plan for plan in found}
    dynamic = by_name["one dynamic variant", 1]
    assert chosen.buckets
    assert chosen.seconds < dynamic.seconds * (1 - margin)
    assert chosen.seconds < min(p.seconds for p in found if p.name == "powers of two")
    # No set of up to three buckets is better; all are tried, request by request.
    static = dict(zip(TABLE.sizes["sequence"], TABLE.static, strict=True))
    for count in (1, 2, 3):
        best = math.inf
        for inner in itertools.combinations(TABLE.sizes["sequence"][:-1], count - 1):
            buckets = (*inner, 512)
            total = sum(
                number * static[next(b for b in buckets if b >= length)]
                for (length,), number in counts.items()
            )
            best = min(best, total / traffic.requests)
        assert by_name["buckets", count].seconds == pytest.approx(best)
    # Nor is any of up to eight, by another recursion, over requests and not over candidates.
    for count in range(4, 9):
        assert by_name["buckets", count].seconds == pytest.approx(
            minimum_cost(static, counts, count) / traffic.requests
        )
    # No neighbour is better: one bucket moved to the next candidate.
    eight = by_name["buckets", 8]
    sizes = list(TABLE.sizes["sequence"])
    for place, step in itertools.product(range(7), (-1, 1)):
        moved = list(eight.buckets["sequence"])
        index = sizes.index(moved[place]) + step
        if 0 <= index < len(sizes) and sizes[index] not in moved:
            moved[place] = sizes[index]
            total = sum(
                number * static[next(b for b in moved if b >= length)]
                for (length,), number in counts.items()
            )
            assert eight.seconds <= total / traffic.requests + 1e-12


def minimum_cost(static: dict[int, float], counts: dict[tuple[int, ...], int], count: int) -> float:
    """The minimum cost with exactly `count` buckets, by trying every next bucket after `low`."""
    sizes = sorted(static)

    @functools.cache
    def cost_above(low: int, left: int) -> float:
        if left == 1:
            return cost_between(low, sizes[-1])
        return min(
            (
                cost_between(low, bucket) + cost_above(bucket, left - 1)
                for bucket in sizes[:-1]
                if bucket > low
            ),
            default=math.inf,
        )

    def cost_between(low: int, bucket: int) -> float:
        requests = sum(number for (length,), number in counts.items() if low < length <= bucket)
        return requests * static[bucket]

    return cost_above(0, count)


def test_where_cost_is_linear_buckets_only_lose() -> None:
    sizes = candidate_sizes([size for (size,) in log_normal()], 32)
    seconds = tuple(0.001 * size for size in sizes)
    table = CostTable(
        dims=("sequence",), sizes={"sequence": sizes}, static=seconds, dynamic=seconds
    )
    traffic = Traffic(log_normal(), Costs(table))
    chosen, margin = choose_plan(candidate_plans(traffic, 8), traffic)
    assert (chosen.name, chosen.variants, chosen.padding) == ("one dynamic variant", 1, 0.0)
    assert margin == 0.02
    busy = Traffic(log_normal(), Costs(replace(table, drift=0.3)))
    assert choose_plan(candidate_plans(busy, 8), busy)[1] == 0.3


def test_a_backend_without_dynamic_graphs_gets_buckets() -> None:
    table = CostTable(dims=("s",), sizes={"s": (8, 16, 64)}, static=(1.0, 2.0, 9.0))
    traffic = Traffic({(3,): 5, (16,): 1, (60,): 1}, Costs(table))
    chosen, _ = choose_plan(candidate_plans(traffic, 2), traffic)
    assert chosen.dims == {"s": {"buckets": [16, 64], "min": 3, "outside": "pad"}}
    chosen, _ = choose_plan(candidate_plans(traffic, 3), traffic)
    assert chosen.buckets == {"s": (8, 16, 64)}
    assert chosen.seconds == pytest.approx((5 * 1 + 2 + 9) / 7)
    assert chosen.padding == pytest.approx((5 * 5 + 4) / (15 + 16 + 60))


STEPPED = CostTable(
    dims=("s",), sizes={"s": (8, 16)}, static=(1.0, 2.0), dynamic_sizes={"s": (8, 16)}
)


def test_a_plan_that_refuses_requests_is_not_chosen() -> None:
    """Size 0 is never padded: however cheap buckets are, only the dynamic graph accepts it."""
    traffic = Traffic({(0,): 1, (8,): 9, (16,): 10}, Costs(replace(STEPPED, dynamic=(5.0, 9.0))))
    found = candidate_plans(traffic, 3)
    by_name = {(plan.name, plan.variants): plan for plan in found}
    assert by_name["buckets", 2].coverage == 0.95
    assert by_name["buckets, and a dynamic variant above", 2].coverage == 0.95
    chosen, _ = choose_plan(found, traffic)
    assert (chosen.name, chosen.coverage) == ("popular sizes, and a dynamic variant", 1.0)
    assert chosen.seconds == pytest.approx((5 + 9 * 1 + 10 * 2) / 20)
    # If no graph accepts them, the best plan among those that refuse fewest remains.
    traffic = Traffic({(0,): 1, (8,): 9, (16,): 10}, Costs(STEPPED))
    chosen, _ = choose_plan(candidate_plans(traffic, 3), traffic)
    assert (chosen.buckets, chosen.coverage) == ({"s": (8, 16)}, 0.95)


def test_without_padding() -> None:
    costs = Costs(replace(STEPPED, dynamic=(5.0, 9.0)))
    traffic = Traffic({(8,): 9, (16,): 10, (12,): 1}, costs, padding=False)
    found = candidate_plans(traffic, 3)
    chosen, _ = choose_plan(found, traffic)
    stated = {"buckets": [8, 16], "min": 8, "max": 16, "outside": "route"}
    assert (chosen.dims, chosen.padding) == ({"s": stated}, 0.0)
    assert chosen.seconds == pytest.approx((9 * 1 + 10 * 2 + 7) / 20)
    assert {plan.coverage for plan in found if plan.name == "buckets"} == {0.5, 0.95}
    exact = Traffic({(8,): 9, (16,): 10}, costs, padding=False)
    chosen, _ = choose_plan(candidate_plans(exact, 3), exact)
    assert chosen.dims == {"s": {"buckets": [8, 16]}}
    with pytest.raises(AotcError, match="AOTC-S026"):
        nothing = Traffic({(12,): 1}, Costs(STEPPED), padding=False)
        choose_plan(candidate_plans(nothing, 3), nothing)


ABOVE = CostTable(
    dims=("s",), sizes={"s": (8, 16, 64)}, static=(1.0, 2.0, 9.0), dynamic=(2.0, 4.0, 8.0)
)


def test_new_sizes_cost_their_first_call_once() -> None:
    """Of 100 requests five are long, of three sizes: routed, they are new three times."""
    padded = {(7,): 60, (15,): 35, (40,): 2, (50,): 2, (64,): 1}
    exact = {(8,): 60, (16,): 35, (40,): 2, (50,): 2, (64,): 1}

    def planned(counts: dict[tuple[int, ...], int], new_size: float) -> list[Plan]:
        """The plans, the chosen one first."""
        traffic = Traffic(counts, Costs(replace(ABOVE, new_size_seconds=new_size)))
        found = candidate_plans(traffic, 3)
        return [choose_plan(found, traffic)[0], *found]

    def new(counts: dict[tuple[int, ...], int], name: str, variants: int) -> float:
        """How many sizes are new."""
        before, after = (
            next(plan for plan in found if (plan.name, plan.variants) == (name, variants))
            for found in (planned(counts, 0.0), planned(counts, 30.0))
        )
        return round((after.seconds - before.seconds) * 100 / 30, 6)

    assert planned(padded, 0.0)[0].name == "buckets, and a dynamic variant above"
    assert planned(padded, 30.0)[0].buckets == {"s": (8, 16, 64)}
    assert new(padded, "buckets", 3) == 0
    assert new(padded, "buckets, and a dynamic variant above", 3) == 3
    assert new(padded, "one dynamic variant", 1) == 5
    # 8, 16, 40, 56 and 64.
    assert new(padded, "dynamic, padded to multiples of 8", 1) == 5
    # 8 and 16 are prepared; the others are not.
    assert new(exact, "popular sizes, and a dynamic variant", 3) == 3


class Slow:
    """Runs that take a second at a size's first and tenth of it later, but for one size."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def dynamic(self, chosen: Mapping[str, int]) -> float:
        point = tuple(chosen.values())
        self.asked.append(point)
        first = self.asked.count(point) == 1
        return 7.0 if first and point == (5,) else 1.0 if first else 0.1


def test_the_first_run_at_a_size_is_compared_with_a_later_one() -> None:
    bench: Any = Slow()
    sizes, firsts = _runnable_sizes(bench, {"s": range(1, 40)}, {"s": [3, 38]})
    # The largest recorded size, which brings in all that is not the size's own, is not counted.
    assert bench.asked[0] == (38,) and (38,) not in firsts
    assert sizes == {"s": list(range(1, 40))}
    assert _new_size(bench, ["s"], firsts) == pytest.approx(0.9)
    assert len(bench.asked) < 40 + 20
    assert _new_size(bench, ["s"], {}) == 0.0
    quicker: Any = Slow()
    assert _new_size(quicker, ["s"], {(1,): 0.5}) == 0.0


def test_drift_between_sessions() -> None:
    assert drift([[1.0, 1.0, 9.0], [1.0, 1.0]]) == 0
    assert drift([[1.0], [3.0]]) == 0.5


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"sizes": {"s": [8, 8]}}, "sizes.s"),
        ({"sizes": {"t": [8, 16]}}, "sizes"),
        ({"sizes": {"s": [0, 16]}}, "sizes.s[0]"),
        ({"static": [1.0]}, "static"),
        ({"dynamic": [1.0]}, "dynamic"),
        ({"dynamic": [1.0, 2.0], "dynamic_sizes": {"s": []}}, "dynamic_sizes.s"),
        ({"noise": 2}, "noise"),
        ({"dims": ["s", "t", "u"]}, "dims"),
    ],
)
def test_a_table_that_contradicts_itself(change: dict[str, object], path: str) -> None:
    document = {"dims": ["s"], "sizes": {"s": [8, 16]}, "static": [1.0, 2.0]}
    decode(CostTable, document)
    with pytest.raises(ParseError) as caught:
        decode(CostTable, {**document, **change})
    assert path in [problem.path for problem in caught.value.problems]
