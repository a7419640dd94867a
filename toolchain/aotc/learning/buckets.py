"""The buckets that cost least, exactly: dynamic programming over one dim, or a grid of two.

One dim.  Sizes are cut into segments by the candidate sizes; the segments up to a bucket and above
the one before it are padded to it.  With `cost[j]` the measured cost of candidate j and `W` the
weight of requests, the least cost of covering segments 0..j with k buckets, the last at j, is
min over i of best[k-1][i] + cost[j] * W(i, j]  (Bellman's recursion; O(k n^2)).  Costs need not
rise with size.

Two dims.  A profile states buckets per dim, so that a plan is a product of two sets.  For every
set of buckets of the dim with fewer candidates, the best set of the other dim is a problem in
one dim; all sets are tried, so that the result is the best product.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aotc.learning.cost_arrays import Floats


class Chosen(NamedTuple):
    """Places of the chosen candidates, rising, and the cost of all requests."""

    places: tuple[int, ...]
    cost: float


def best_buckets(cost: Floats, weight: Floats, most: int) -> list[Chosen]:
    """The best 1, 2, .. `most` buckets that take every request.

    `cost[j]` is that of one request at candidate j, `weight[j]` the requests whose sizes lie above
    candidate j - 1 and not above j.  The last candidate is always chosen.
    """
    pair_cost = np.asarray(cost, float)[:, None] * _between(np.asarray(weight, float)).T
    return _solve(pair_cost, most)


def _between(weight: Floats) -> Floats:
    """[i, j] is the weight of segments i..j; 0 below the diagonal."""
    total = np.concatenate(([0.0], np.cumsum(weight)))
    return np.triu(total[None, 1:] - total[:-1, None])


def _solve(pair_cost: Floats, most: int) -> list[Chosen]:
    """`pair_cost[j, i]` is the cost of segments i..j at bucket j."""
    count = len(pair_cost)
    best = pair_cost[:, 0].copy()
    came = [np.full(count, -1)]
    found = [_trace(came, count - 1, float(best[-1]))]
    for _ in range(1, min(most, count)):
        later = np.full(count, np.inf)
        back = np.full(count, -1)
        for j in range(1, count):
            ways = best[:j] + pair_cost[j, 1 : j + 1]
            back[j] = int(np.argmin(ways))
            later[j] = ways[back[j]]
        best = later
        came.append(back)
        found.append(_trace(came, count - 1, float(best[-1])))
    return found


def _trace(came: list[npt.NDArray[Any]], last: int, cost: float) -> Chosen:
    places, place = [last], last
    for back in reversed(came[1:]):
        place = int(back[place])
        if place < 0:
            return Chosen((), float("inf"))
        places.append(place)
    return Chosen(tuple(reversed(places)), cost)


class Grid(NamedTuple):
    """Places of the chosen candidates of both dims, and the cost of all requests."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cost: float


def best_grid(cost: Floats, weight: Floats, most: int) -> list[Grid]:
    """The best products of buckets with 1, 2, .. `most` combinations.

    `cost` and `weight` are [rows, columns], as in `best_buckets`.  Where no product has exactly so
    many combinations, the best of fewer stands.
    """
    cost, weight = np.asarray(cost, float), np.asarray(weight, float)
    if cost.shape[0] > cost.shape[1]:
        turned = best_grid(cost.T, weight.T, most)
        return [Grid(each.columns, each.rows, each.cost) for each in turned]
    rows = cost.shape[0]
    best: list[Grid | None] = [None] * most
    for taken in range(min(rows, most)):
        for inner in itertools.combinations(range(rows - 1), taken):
            chosen = (*inner, rows - 1)
            # Requests of each row bucket: all rows above the bucket before it.
            edges = [-1, *chosen]
            pair_cost = sum(
                cost[row][:, None] * _between(weight[low + 1 : row + 1].sum(axis=0)).T
                for low, row in itertools.pairwise(edges)
            )
            for count, found in enumerate(_solve(np.asarray(pair_cost), most // len(chosen)), 1):
                place = count * len(chosen) - 1
                known = best[place]
                if known is None or found.cost < known.cost:
                    best[place] = Grid(chosen, found.places, found.cost)
    result: list[Grid] = []
    for each in best:
        before = result[-1] if result else None
        if each is None or (before is not None and before.cost <= each.cost):
            each = before
        if each is not None:
            result.append(each)
    return result
