"""Ways to serve recorded requests: dims that vary, buckets of minimum cost, and plans."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.base.text import did_you_mean
from aotc.spec.codec import Json
from aotc.spec.shapes import DimRange, Relation
from aotc.spec.traffic import RecordedTraffic
from aotc.tools.learn_costs import Costs, Floats

# The buckets of minimum cost, exactly: dynamic programming over one dim, or a grid of two.
#
# One dim. Candidate sizes cut the sizes into segments; the segments up to a bucket and above the
# previous one are padded to it. With `cost[j]` the measured cost of candidate j and `W` the weight
# of requests, the minimum cost of covering segments 0..j with k buckets, the last at j, is min over
# i of best[k-1][i] + cost[j] * W(i, j] (Bellman's recursion; O(k n^2)). Costs need not rise with
# size.
#
# Two dims. A profile states buckets per dim, so a plan is a product of two sets. For every set of
# buckets of the dim with fewer candidates, the best set of the other dim is a problem in one dim;
# all sets are tried, so the result is the best product.


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


# The sizes that are measured and can become buckets.


# The maximum numbers of measured sizes of one dim, or of each of two, apart from powers of two.
MAX_ONE_DIM = 32
MAX_TWO_DIMS = 7
_CANDIDATE_GRIDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def candidate_sizes(sizes: Iterable[int], max_count: int) -> tuple[int, ...]:
    """Candidate sizes for the recorded `sizes`, rising; the last is at least their maximum.

    They are the recorded sizes if there are few, otherwise sizes rounded up to the finest grid of
    powers of two that leaves at most `max_count`.  Powers of two up to the maximum are added, so
    that plans of powers of two are measured instead of estimated.
    """
    seen = sorted(set(sizes))
    largest = seen[-1]
    chosen: Sequence[int] = seen
    for grid in _CANDIDATE_GRIDS:
        chosen = sorted({-(-size // grid) * grid or grid for size in seen})
        if len(chosen) <= max_count:
            break
    # The smallest size keeps its own cost, so that none is extrapolated below it.
    found = {*chosen, max(seen[0], 1)}
    found |= set(powers_of_two(seen[0], max(chosen[-1], largest)))
    return tuple(sorted(found))


def powers_of_two(smallest: int, largest: int) -> tuple[int, ...]:
    """Powers of two from the first that holds `smallest`; the last element is `largest` itself."""
    powers, power = [], 1
    while power < largest:
        if power >= smallest:
            powers.append(power)
        power *= 2
    return (*powers, largest)


def sizes_between(counts: Mapping[int, int], chosen: Sequence[int]) -> tuple[int, ...]:
    """For each pair of neighbours in `chosen`, the most requested recorded size between them."""
    found = []
    for low, high in itertools.pairwise(chosen):
        inside = {size: count for size, count in counts.items() if low < size < high}
        if inside:
            found.append(max(inside, key=lambda size: (inside[size], size)))
    return tuple(found)


# Ways to serve recorded requests, each with its cost.


_GRIDS = (8, 16, 32, 64, 128)
# Plans that differ by a smaller share are considered equal, however quiet the measurement was.
MIN_MARGIN = 0.02
# With two dims, all sets of sizes of one of them are tried: at most 2^12.
_MAX_ROWS = 13
_MAX_BUCKETS = 256

Sizes = tuple[int, ...]


class Served(NamedTuple):
    """How a plan serves a request: its seconds, the sizes that run, and whether they are fixed.

    Fixed sizes are prepared when the model is loaded; any other is new at its first call.
    """

    seconds: float
    sizes: Sizes
    fixed: bool


@record
class Plan:
    """One way to serve: average seconds per request, and elements added per given one.

    The seconds are those of one process that serves the recorded requests: each size that it did
    not prepare is new to it once.
    `dims` are the fields of each dim in a profile, and `coverage` the share of requests that they
    accept.  Only `offered` plans may be chosen; the others are for comparison.
    """

    name: str
    variants: int
    seconds: float
    padding: float
    coverage: float
    dims: Mapping[str, Mapping[str, Json]]
    offered: bool = True
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Traffic:
    """Requests by their sizes of the planned dims."""

    def __init__(self, counts: Mapping[Sizes, int], costs: Costs, *, padding: bool = True) -> None:
        """`counts` has tuples in the order of the dims; with `padding` requests may be padded."""
        self.padding = padding
        self.costs = costs
        self.dims = costs.dims
        self.counts = dict(counts)
        self.requests = sum(self.counts.values())
        self.low = tuple(min(sizes[i] for sizes in counts) for i in range(len(self.dims)))
        self.high = tuple(max(sizes[i] for sizes in counts) for i in range(len(self.dims)))
        self.costs = costs = costs.within(self.low, self.high)
        self.weight = np.zeros(costs.static.shape)
        for sizes, count in self.counts.items():
            self.weight[costs.indices(self.named(sizes))] += count

    def as_given(self, sizes: Sizes) -> Served:
        """A request that the dynamic graph runs at its own sizes."""
        return Served(self.costs.dynamic_seconds(self.named(sizes)), sizes, fixed=False)

    def fixed(self, sizes: Sizes) -> Served:
        """A request that runs at measured sizes which are prepared."""
        seconds = float(self.costs.static[self.costs.indices(self.named(sizes))])
        return Served(seconds, sizes, fixed=True)

    def noise(self) -> float:
        """The relative error of an expected cost.

        Errors of single sizes are independent, so that of their weighted mean is smaller by the
        root of their effective number, (sum w)^2 / sum w^2 (Kish, "Survey Sampling", 1965).
        """
        number = float(self.weight.sum() ** 2 / np.square(self.weight).sum())
        return self.costs.table.noise / math.sqrt(max(number, 1.0))

    def named(self, sizes: Sizes) -> dict[str, int]:
        """Sizes by dim."""
        return dict(zip(self.dims, sizes, strict=True))

    def plan(
        self,
        name: str,
        serve: Callable[[Sizes], Served],
        dims: Mapping[str, Mapping[str, Json]],
        *,
        variants: int,
        offered: bool = True,
        buckets: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Plan:
        """A plan; `serve` says how it serves a request."""
        seconds, given_elements, run_elements, accepted = 0.0, 0, 0, 0
        ranges = [DimRange.from_json(dict(dims[dim])) for dim in self.dims]
        new: set[Sizes] = set()
        for sizes, count in self.counts.items():
            seconds_of_one, wanted, fixed = serve(sizes)
            seconds += count * seconds_of_one
            if not fixed:
                new.add(wanted)
            if all(spec.allows(size) for spec, size in zip(ranges, sizes, strict=True)):
                accepted += count
            given_elements += count * math.prod(sizes)
            run_elements += count * math.prod(wanted)
        seconds += len(new) * self.costs.table.new_size_seconds
        return Plan(
            name=name,
            variants=variants,
            seconds=seconds / self.requests,
            padding=(run_elements - given_elements) / max(given_elements, 1),
            coverage=accepted / self.requests,
            dims=dims,
            offered=offered,
            buckets=buckets or {},
        )

    def range_of(self, index: int) -> dict[str, Json]:
        """The recorded range of a dim; the optimum is the median over requests."""
        totals: Counter[int] = Counter()
        for sizes, count in self.counts.items():
            totals[sizes[index]] += count
        ordered = sorted(totals)
        middle, seen = ordered[0], 0
        for middle in ordered:
            seen += totals[middle]
            if 2 * seen >= self.requests:
                break
        return {"min": self.low[index], "opt": middle, "max": self.high[index]}


def candidate_plans(traffic: Traffic, max_variants: int) -> list[Plan]:
    """All plans with at most `max_variants` variants: dynamic, padded to a multiple, buckets."""
    max_variants = min(max_variants, traffic.costs.static.size + 1, _MAX_BUCKETS)
    if len(traffic.dims) > 1 and min(traffic.costs.static.shape) > _MAX_ROWS:
        raise AotcError(
            "AOTC-S026",
            "the costs cover too many sizes to plan for two dims",
            expected=f"at most {_MAX_ROWS} of one of them",
            found=" and ".join(str(size) for size in traffic.costs.static.shape),
            fix="Measure with --model, which uses fewer; or plan for one with --dim.",
        )
    found = [*_dynamic_plans(traffic), *_baseline_plans(traffic, max_variants)]
    if len(traffic.dims) == 1:
        found += [
            _bucketed_plan(traffic, "buckets", (_axis_sizes(traffic, 0, chosen.indices),))
            for chosen in best_buckets(traffic.costs.static, traffic.weight, max_variants)
        ]
        if traffic.costs.dynamic is not None and max_variants > 1:
            found += _popular_size_plans(traffic, max_variants)
            if traffic.padding:
                found += _plans_with_dynamic_above(traffic, max_variants)
    else:
        for grid in best_grid(traffic.costs.static, traffic.weight, max_variants):
            sizes = (_axis_sizes(traffic, 0, grid.rows), _axis_sizes(traffic, 1, grid.columns))
            found.append(_bucketed_plan(traffic, "buckets", sizes))
    return _best_by_name(found)


def choose_plan(found: Sequence[Plan], traffic: Traffic) -> tuple[Plan, float]:
    """The plan with the fewest variants within the margin of the best, and the margin.

    The margin is the noise of an expected cost, at least 2 %; the machine's drift shifts many sizes
    alike and counts in full.  A plan that refuses requests is chosen only if all plans refuse as
    many: a size of 0 is never padded.  Raises AOTC-S026 if no plan accepts any request.
    """
    offered = [plan for plan in found if plan.offered]
    coverage = max(plan.coverage for plan in offered)
    if not coverage:
        raise AotcError(
            "AOTC-S026",
            "the table has no costs of a graph that accepts the recorded sizes as they are",
            expected="dynamic costs, as --model gives",
        )
    offered = [plan for plan in offered if plan.coverage == coverage]
    margin = max(traffic.noise(), traffic.costs.table.drift, MIN_MARGIN)
    minimum = min(plan.seconds for plan in offered)
    close = [plan for plan in offered if plan.seconds <= minimum * (1 + margin)]
    # Of equal plans the one that pads least: one dynamic variant comes before one bucket.
    return min(close, key=lambda plan: (plan.variants, plan.padding, plan.seconds)), margin


def _best_by_name(found: Sequence[Plan]) -> list[Plan]:
    """Of plans with one name and one number of variants, the one of minimum cost."""
    known: dict[tuple[str, int], Plan] = {}
    for plan in found:
        same = known.get((plan.name, plan.variants))
        if same is None or plan.seconds < same.seconds:
            known[plan.name, plan.variants] = plan
    return list(known.values())


def _dynamic_plans(traffic: Traffic) -> list[Plan]:
    costs = traffic.costs
    if costs.dynamic is None:
        return []
    ranges = {dim: traffic.range_of(index) for index, dim in enumerate(traffic.dims)}
    found = [traffic.plan("one dynamic variant", traffic.as_given, ranges, variants=1)]
    last = len(traffic.dims) - 1
    padded = []
    for grid in _GRIDS if traffic.padding else ():
        if -(-traffic.high[last] // grid) * grid <= costs.dynamic_axes[last][-1]:
            padded.append(_plan_padded_to_multiple(traffic, last, grid, ranges))
    if padded:
        found.append(min(padded, key=lambda plan: plan.seconds))
    return found


def _plan_padded_to_multiple(
    traffic: Traffic, index: int, grid: int, ranges: Mapping[str, Mapping[str, Json]]
) -> Plan:
    def serve(sizes: Sizes) -> Served:
        wanted = (*sizes[:index], -(-max(sizes[index], 1) // grid) * grid, *sizes[index + 1 :])
        return traffic.as_given(wanted)

    dim = traffic.dims[index]
    high = -(-traffic.high[index] // grid) * grid
    stated = {"min": traffic.low[index], "max": high, "multiple_of": grid, "outside": "pad"}
    return traffic.plan(
        f"dynamic, padded to multiples of {grid}", serve, {**ranges, dim: stated}, variants=1
    )


def _baseline_plans(traffic: Traffic, max_variants: int) -> list[Plan]:
    """Plans for comparison: pad to the largest size; powers of two, with as many variants."""
    sides = range(len(traffic.dims))
    largest = tuple((int(axis[-1]),) for axis in traffic.costs.axes)
    found = [_bucketed_plan(traffic, "pad to the largest", largest, offered=False)]
    powers = []
    # The maximum number of one dim's buckets, and what remains for the other dim.
    splits = (
        [(max_variants,)]
        if len(sides) == 1
        else [(n, max_variants // n) for n in range(1, max_variants + 1)]
    )
    for split in splits:
        if all(split):
            chosen = tuple(
                powers_of_two(max(traffic.low[i], 1), int(traffic.costs.axes[i][-1]))[-split[i] :]
                for i in sides
            )
            if all(set(chosen[i]) <= set(traffic.costs.axes[i].astype(int)) for i in sides):
                powers.append(_bucketed_plan(traffic, "powers of two", chosen, offered=False))
    if powers:
        found.append(min(powers, key=lambda plan: plan.seconds))
    return found


def _axis_sizes(traffic: Traffic, index: int, indices: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(traffic.costs.axes[index][place]) for place in indices)


def _bucketed_plan(
    traffic: Traffic, name: str, chosen: Sequence[tuple[int, ...]], *, offered: bool = True
) -> Plan:
    def serve(sizes: Sizes) -> Served:
        return traffic.fixed(
            tuple(
                next(bucket for bucket in buckets if bucket >= size)
                for size, buckets in zip(sizes, chosen, strict=True)
            )
        )

    dims = {
        dim: {"buckets": list(buckets)}
        | ({"min": max(traffic.low[index], 1), "outside": "pad"} if traffic.padding else {})
        for index, (dim, buckets) in enumerate(zip(traffic.dims, chosen, strict=True))
    }
    return traffic.plan(
        name,
        serve,
        dims,
        variants=math.prod(len(buckets) for buckets in chosen),
        offered=offered,
        buckets=dict(zip(traffic.dims, chosen, strict=True)),
    )


def _plans_with_dynamic_above(traffic: Traffic, max_variants: int) -> list[Plan]:
    """Buckets for the smaller sizes, and the dynamic variant for those above."""
    costs, weight = traffic.costs, traffic.weight
    return [
        _routed_plan(traffic, _axis_sizes(traffic, 0, chosen.indices))
        for last in range(len(weight) - 1)
        for chosen in best_buckets(costs.static[: last + 1], weight[: last + 1], max_variants - 1)
    ]


def _routed_plan(traffic: Traffic, buckets: tuple[int, ...]) -> Plan:
    def serve(sizes: Sizes) -> Served:
        (size,) = sizes
        fitting = next((bucket for bucket in buckets if bucket >= size), None)
        return traffic.as_given(sizes) if fitting is None else traffic.fixed((fitting,))

    stated = {
        "buckets": list(buckets),
        "min": max(traffic.low[0], 1),
        "max": max(traffic.high[0], buckets[-1]),
        "outside": ["pad", "route"],
    }
    return traffic.plan(
        "buckets, and a dynamic variant above",
        serve,
        {traffic.dims[0]: stated},
        variants=len(buckets) + 1,
        buckets={traffic.dims[0]: buckets},
    )


def _popular_size_plans(traffic: Traffic, max_variants: int) -> list[Plan]:
    """Static variants for the sizes that gain most, and the dynamic one for all others."""
    costs = traffic.costs
    (axis,) = costs.axes
    gains = []
    for place, size in enumerate(axis.astype(int)):
        count = traffic.counts.get((int(size),), 0)
        gain = costs.dynamic_seconds(traffic.named((int(size),))) - float(costs.static[place])
        if count and gain > 0:
            gains.append((count * gain, int(size)))
    found = []
    ordered = [size for _, size in sorted(gains, reverse=True)]
    for number in range(1, min(max_variants - 1, len(ordered)) + 1):
        chosen = tuple(sorted(ordered[:number]))

        def serve(sizes: Sizes, chosen: tuple[int, ...] = chosen) -> Served:
            return traffic.fixed(sizes) if sizes[0] in chosen else traffic.as_given(sizes)

        stated = {
            "buckets": list(chosen),
            "min": traffic.low[0],
            "max": traffic.high[0],
            "outside": "route",
        }
        found.append(
            traffic.plan(
                "popular sizes, and a dynamic variant",
                serve,
                {traffic.dims[0]: stated},
                variants=number + 1,
                buckets={traffic.dims[0]: chosen},
            )
        )
    return found


# The dims of recorded requests that vary, follow from others, or are planned for.


_MAX_DIMS = 2
# A dim with fewer distinct sizes may match others by chance.
_MIN_DISTINCT = 3


class VaryingDims:
    """The dims of the traffic that vary, follow from others, or are planned for."""

    def __init__(
        self, recorded: RecordedTraffic, wanted: Sequence[str], relations: Sequence[Relation] = ()
    ) -> None:
        """`wanted` names the dims to plan for; `relations` are those that the profile states.

        Raises AOTC-I027 (`wanted` names an unknown dim), S004 (there is no free dim) and S024
        (more than two dims remain).
        """
        if not recorded.dims:
            raise AotcError(
                "AOTC-S004",
                "the model has no free dim to plan for",
                where=recorded.path,
                fix="Export the model with a dynamic axis.",
            )
        self.recorded = recorded
        columns = dict(zip(recorded.dims, zip(*recorded.counts, strict=True), strict=True))
        for name in wanted:
            if name not in columns:
                raise AotcError(
                    "AOTC-I027",
                    f"the traffic has no dim {name!r}{did_you_mean(name, recorded.dims)}",
                    expected=", ".join(recorded.dims),
                )
        self.fixed = {
            name: sizes[0]
            for name, sizes in columns.items()
            if len(set(sizes)) == 1 and name not in wanted
        }
        varying = [name for name in recorded.dims if name not in self.fixed]
        self.derived = _derived_dims(columns, varying, wanted)
        self.follows = self.derived | _stated_relations(columns, relations)
        free = [name for name in varying if name not in self.follows]
        self.planned = tuple(wanted) or tuple(free) or recorded.dims[-1:]
        self.fixed = {name: size for name, size in self.fixed.items() if name not in self.planned}
        if len(self.planned) > _MAX_DIMS:
            raise AotcError(
                "AOTC-S024",
                f"{len(self.planned)} dims vary",
                where=recorded.path,
                expected="one or two, named by --dim",
                found=", ".join(self.planned),
            )
        self.ranged = [name for name in free if name not in self.planned]

    def counts(self) -> dict[tuple[int, ...], int]:
        """Requests by their sizes of the planned dims."""
        found: Counter[tuple[int, ...]] = Counter()
        for sizes, count in self.recorded.sizes():
            found[tuple(sizes[name] for name in self.planned)] += count
        return dict(found)

    def most_common_size(self, name: str) -> int:
        """The size of a dim that most requests have."""
        found: Counter[int] = Counter()
        for sizes, count in self.recorded.sizes():
            found[sizes[name]] += count
        return found.most_common(1)[0][0]

    def span(self, name: str) -> tuple[int, int]:
        """The smallest and largest recorded size of a dim."""
        sizes = [sizes[name] for sizes, _ in self.recorded.sizes()]
        return min(sizes), max(sizes)


def _stated_relations(
    columns: Mapping[str, Sequence[int]], relations: Sequence[Relation]
) -> dict[str, tuple[str, ...]]:
    return {
        relation.dim: relation.terms
        for relation in relations
        if not relation.constant and columns.keys() >= {relation.dim, *relation.terms}
    }


def _derived_dims(
    columns: Mapping[str, Sequence[int]], varying: Sequence[str], wanted: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Varying dims that equal another, or the sum of two others, in every request.

    A sum may have a term that never varies.  A few sizes may match by chance and are not enough.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in varying:
        sizes = columns[name]
        if name in wanted or len(set(sizes)) < _MIN_DISTINCT:
            continue
        others = [other for other in columns if other != name and other not in found]
        singles: list[tuple[str, ...]] = [(other,) for other in others if other in varying]
        for terms in (*singles, *itertools.combinations(others, 2)):
            sums = zip(*(columns[term] for term in terms), strict=True)
            if all(sum(summed) == size for summed, size in zip(sums, sizes, strict=True)):
                found[name] = terms
                break
    return found
