"""The buckets of minimum cost, exactly: dynamic programming over one dim, or a grid of two.

One dim.  Candidate sizes cut the sizes into segments; the segments up to a bucket and above the
previous one are padded to it.  With `cost[j]` the measured cost of candidate j and `W` the weight
of requests, the minimum cost of covering segments 0..j with k buckets, the last at j, is
min over i of best[k-1][i] + cost[j] * W(i, j]  (Bellman's recursion; O(k n^2)).  Costs need not
rise with size.

Two dims.  A profile states buckets per dim, so a plan is a product of two sets.  For every set of
buckets of the dim with fewer candidates, the best set of the other dim is a problem in one dim; all
sets are tried, so the result is the best product.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aotc.learning.cost_arrays import Floats


class ChosenBuckets(NamedTuple):
    """Indices of the chosen candidates, rising, and the cost of all requests in seconds."""

    indices: tuple[int, ...]
    cost: float


def best_buckets(cost: Floats, weight: Floats, max_buckets: int) -> list[ChosenBuckets]:
    """The best 1, 2, .. `max_buckets` buckets that accept every request.

    `cost[j]` is the seconds of one request at candidate j; `weight[j]` is the number of requests
    with sizes above candidate j - 1 and up to j.  The last candidate is always chosen.
    """
    pair_cost = np.asarray(cost, float)[:, None] * _between(np.asarray(weight, float)).T
    return _solve(pair_cost, max_buckets)


def _between(weight: Floats) -> Floats:
    """[i, j] is the weight of segments i..j; 0 below the diagonal."""
    total = np.concatenate(([0.0], np.cumsum(weight)))
    return np.triu(total[None, 1:] - total[:-1, None])


def _solve(pair_cost: Floats, max_buckets: int) -> list[ChosenBuckets]:
    """The best buckets, where `pair_cost[j, i]` is the cost of segments i..j at bucket j."""
    count = len(pair_cost)
    best = pair_cost[:, 0].copy()
    predecessors = [np.full(count, -1)]
    found = [_trace(predecessors, count - 1, float(best[-1]))]
    for _ in range(1, min(max_buckets, count)):
        costs = np.full(count, np.inf)
        previous = np.full(count, -1)
        for j in range(1, count):
            alternatives = best[:j] + pair_cost[j, 1 : j + 1]
            previous[j] = int(np.argmin(alternatives))
            costs[j] = alternatives[previous[j]]
        best = costs
        predecessors.append(previous)
        found.append(_trace(predecessors, count - 1, float(best[-1])))
    return found


def _trace(predecessors: list[npt.NDArray[Any]], last: int, cost: float) -> ChosenBuckets:
    indices, index = [last], last
    for previous in reversed(predecessors[1:]):
        index = int(previous[index])
        if index < 0:
            return ChosenBuckets((), float("inf"))
        indices.append(index)
    return ChosenBuckets(tuple(reversed(indices)), cost)


class Grid(NamedTuple):
    """Indices of the chosen candidates of both dims, and the cost of all requests in seconds."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cost: float


def best_grid(cost: Floats, weight: Floats, max_combinations: int) -> list[Grid]:
    """The best products of buckets with 1, 2, .. `max_combinations` combinations.

    `cost` and `weight` are arrays of [rows, columns]; see `best_buckets`.  If no product has
    exactly that many combinations, the best one with fewer is returned.
    """
    cost, weight = np.asarray(cost, float), np.asarray(weight, float)
    if cost.shape[0] > cost.shape[1]:
        transposed = best_grid(cost.T, weight.T, max_combinations)
        return [Grid(grid.columns, grid.rows, grid.cost) for grid in transposed]
    rows = cost.shape[0]
    best: list[Grid | None] = [None] * max_combinations
    for inner_count in range(min(rows, max_combinations)):
        for inner in itertools.combinations(range(rows - 1), inner_count):
            chosen = (*inner, rows - 1)
            # The requests of a row bucket: all rows above the previous bucket.
            edges = [-1, *chosen]
            pair_cost = sum(
                cost[row][:, None] * _between(weight[low + 1 : row + 1].sum(axis=0)).T
                for low, row in itertools.pairwise(edges)
            )
            for count, found in enumerate(
                _solve(np.asarray(pair_cost), max_combinations // len(chosen)), 1
            ):
                index = count * len(chosen) - 1
                known = best[index]
                if known is None or found.cost < known.cost:
                    best[index] = Grid(chosen, found.indices, found.cost)
    result: list[Grid] = []
    for grid in best:
        previous = result[-1] if result else None
        if grid is None or (previous is not None and previous.cost <= grid.cost):
            grid = previous
        if grid is not None:
            result.append(grid)
    return result
