"""The range of each dim around sizes that run, and the box of them whose corners must run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.sizes.dim_hints import STAGES, DimHints, Kind, optimum, sizes_beyond
from aotc.sizes.relations import Move
from aotc.sizes.trials import Trials
from aotc.spec.payload import Finding
from aotc.spec.shapes import Dim, Domain, Relation, Stop, sizes_in_words

# How many multiples are tried at either end of a range until one runs.
_MAX_END_TRIES = 4
# How many sizes beyond a failure are tried before it counts as the upper bound.
_MAX_SIZES_BEYOND = 24
# Up to this many dims all corners are run, 2 to the power of their number; beyond, one at a time.
_MAX_DIMS_OF_ALL_CORNERS = 3
# How often a bound is halved because of one mixed corner.
_MAX_HALVINGS = 3
# How many failing corners are reported with their sizes.
_MAX_REPORTED_CORNERS = 12
# Steps of the sizes that models accept: strides of 2, patches and windows of 7, 12 or 14.
GRIDS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
# On a grid coarser than this, at least so many sizes between the ends are tried.
_USUAL_GRID, _MIN_SAMPLES = 64, 2
# If a grid has at most this many sizes, all are tried.
_MAX_EXHAUSTIVE = 40
# Where in a range sizes are tried for gaps, as shares of it.
_SAMPLED_SHARES = (0.07, 0.19, 0.31, 0.47, 0.58, 0.73, 0.91)
# Share of the limits beyond usual sizes: a build runs the largest sizes several times.
SHARE: Final = 1 / 8
# Beyond this size, which few callers exceed, a smaller one.
_USUAL_SIZE, _SMALL_SHARE = 1024, 1 / 64


@record(frozen=False, kw_only=False)
class Bounder:
    """Searches the range of `dim`, with all other dims as in `base` or as `relations` require.

    `declared_sizes` appear in the model's declaration; like usual sizes, they are tried beyond a
    failure.
    """

    trials: Trials
    dim: str
    base: Mapping[str, int]
    relations: Sequence[Relation] = ()
    declared_sizes: Sequence[int] = ()
    is_batch: bool = False
    """Whether all sizes up to one that runs are likely to run."""
    tested: set[int] = field(default_factory=set)
    """Sizes that run."""
    _full_cost_limit: int = 0

    def bounds(self, move: Move | None) -> Dim:
        """The range that runs: its ends, its grid, and the sizes within it that fail."""
        down = self.lowered(move)
        limit = self.trials.limits.max_size
        return down if move is None else self.raised(down, move.step, limit)

    def lowered(self, move: Move | None) -> Dim:
        """The range from the smallest size that runs up to the one in `base`."""
        size = self.base[self.dim]
        if move is None:
            stop = self.trials.stop or "error"
            return Dim(min=size, max=size, opt=size, tested=(size,), stopped_by=stop)
        step = move.step
        self.tested.add(size)
        low = self._lowest(size, step)
        grid = step if low % step == 0 and size % step == 0 else 1
        return self._dim_between(low, size, grid)

    def raised(self, down: Dim, step: int, limit: int, full_cost_limit: int = 0) -> Dim:
        """`down`, extended upwards in steps of `step` as far as the model runs, at most to `limit`.

        Takes a coarser grid if that reaches further.  Above `full_cost_limit`, a run may cost only
        a share of the limits.

        Larger sizes count as failing once the next one on the grid and those beyond it that users
        may choose have failed.
        """
        limit = max(down.max, limit)
        self._full_cost_limit = full_cost_limit
        self.tested |= set(down.tested)
        low = down.min
        high, stop = self._highest(down.max, step, limit)
        if stop == "error":
            coarse_grid = self._coarser_grid(high, step, limit)
            if coarse_grid is not None:
                low, step, high = coarse_grid
                high, stop = self._highest(high, step, limit)
        grid = step if low % step == 0 and high % step == 0 else 1
        found = self._dim_between(low, high, grid)
        return self.without_gaps(replace(found, stopped_by=self.trials.stop or stop))

    def without_gaps(self, dim: Dim) -> Dim:
        """`dim` on a grid that avoids the sizes that fail, or with those sizes as its gaps."""
        low, high, grid, gaps = dim.min, dim.max, dim.multiple_of, dim.gaps
        gives_up = partial(self.trials.gives_up, f"sizes between the ends of {self.dim}")
        if grid == 1 and not (self.is_batch and gives_up()):
            low, high, grid, gaps = without_gaps(low, high, self._runs_at, gives_up)
            if self.trials.stop:
                # Sizes that were not tried did not fail.
                return replace(dim, stopped_by=self.trials.stop)
            gapless = self._gapless_part(low, high) if gaps else None
            if gapless is not None:
                stop = dim.stopped_by if gapless.max == high else gapless.stopped_by
                return self.without_gaps(replace(gapless, stopped_by=stop))
        return replace(self._dim_between(low, high, grid), gaps=gaps, stopped_by=dim.stopped_by)

    def _gapless_part(self, low: int, high: int) -> Dim | None:
        """The part around the size in `base` that has no gaps, if most of the range fails.

        This happens where a size of 1 is broadcast to the size of a table.
        """
        inner = sampled_between(low, high)
        failing = [size for size in inner if not self._runs_at(size)]
        if 2 * len(failing) <= len(inner):
            return None
        anchor_size = self.base[self.dim]
        below, above = (
            [s for s in failing if s < anchor_size],
            [s for s in failing if s > anchor_size],
        )
        if below:
            low = bisect(anchor_size, below[-1], 1, self._runs_at)
        if above:
            high = bisect(anchor_size, above[0], 1, self._runs_at)
        return replace(self._dim_between(low, high, 1), stopped_by=self.trials.stop or "error")

    def with_tried_end(self, dim: Dim) -> Dim:
        """`dim` after trying the size beyond its largest, where all limits end anyway."""
        size = dim.max + dim.multiple_of
        failed = not self._exceeded_limit(size) and not self._runs_at(size)
        return replace(dim, stopped_by="error") if failed and not self.trials.stop else dim

    def on_grid(self, dim: Dim, step: int, minimum: int) -> Dim | None:
        """`dim` restricted to multiples of `step` from `minimum` on; None if none of them runs.

        The ends move inwards to multiples that run; sizes between them that fail are gaps.
        """
        grid = math.lcm(dim.multiple_of, step)
        first = -(-max(dim.min, minimum) // grid) * grid
        last = dim.max // grid * grid
        sizes = range(first, last + 1, grid)
        low = next((size for size in sizes[:_MAX_END_TRIES] if self._runs_at(size)), None)
        high = next((size for size in sizes[::-1][:_MAX_END_TRIES] if self._runs_at(size)), None)
        if (low is None or high is None) and self.trials.stop:
            # Without more runs, only sizes that are known to run remain.
            low = high = next((size for size in sorted(self.tested) if size in sizes), None)
        if low is None or high is None:
            return None
        return replace(
            dim,
            min=low,
            max=high,
            opt=low,
            multiple_of=grid,
            tested=tuple(size for size in sorted(self.tested) if size in sizes),
            gaps=tuple(size for size in dim.gaps if low < size < high and size % grid == 0),
        )

    def _dim_between(self, low: int, high: int, grid: int) -> Dim:
        tested = tuple(size for size in sorted(self.tested) if low <= size <= high)
        return Dim(min=low, max=high, opt=low, multiple_of=grid, tested=tested)

    def _runs_at(self, size: int) -> bool:
        sizes = self.trials.complete({**self.base, self.dim: size}, self.relations)
        if min(sizes.values()) < 0:
            return False
        outcome = self.trials.run(sizes)
        moved = {sizes[dim] for dim in sizes if sizes[dim] != self.base.get(dim)}
        ok = outcome.ok and not (outcome.empty and 0 in moved)
        if ok:
            self.tested.add(size)
        return ok

    def _lowest(self, base: int, step: int) -> int:
        first = base % step or step
        if self._runs_at(first):
            return first
        return bisect(base, first, step, self._runs_at)

    def _highest(self, good: int, step: int, limit: int) -> tuple[int, Stop]:
        """The largest size up to `limit` that runs, and what ended the search."""
        last = limit // step * step if good % step == 0 else good + (limit - good) // step * step
        if last <= good:
            return good, "size"
        # Usually the whole range runs.
        if not self._exceeded_limit(last) and self._runs_at(last):
            return last, "size"
        grow = step
        while good < last:
            size = good * 2 if good % (2 * step) == 0 and good >= step else good + grow
            size = min(size, last)
            stop = self._exceeded_limit(size)
            if stop:
                return good, stop
            if not self._runs_at(size):
                if self.trials.stop:
                    return good, self.trials.stop
                return bisect(good, size, step, self._runs_at), "error"
            good, grow = size, max(grow, step)
        return good, "size"

    def _coarser_grid(self, high: int, step: int, limit: int) -> tuple[int, int, int] | None:
        """Lowest size, step, and a size above `high`, for a grid that reaches further."""
        for size in sizes_beyond(high, limit, step, self.declared_sizes)[:_MAX_SIZES_BEYOND]:
            if self.trials.gives_up(f"sizes of {self.dim} beyond a failure"):
                return None
            if self._exceeded_limit(size) or not self._runs_at(size):
                continue
            for grid in GRIDS:
                coarse = step * grid
                if size % coarse:
                    continue
                neighbors = (size - coarse, size + coarse)
                if all(0 < neighbor <= limit and self._runs_at(neighbor) for neighbor in neighbors):
                    return self._lowest(size, coarse), coarse, size + coarse
        return None

    def _exceeded_limit(self, size: int) -> Stop:
        sizes = self.trials.complete({**self.base, self.dim: size}, self.relations)
        return self.trials.exceeded_limit(sizes, 1.0 if size <= self._full_cost_limit else SHARE)


def bisect(good: int, bad: int, step: int, runs_at: Callable[[int], bool]) -> int:
    """The last size that works on the way from `good`, which works, to `bad`, which does not."""
    while abs(bad - good) > step:
        middle = min(good, bad) + abs(bad - good) // 2 // step * step
        if runs_at(middle):
            good = middle
        else:
            bad = middle
    return good


# The box of sizes: its corners must run, or probed bounds shrink until they do.


class Exhausted(Exception):
    """No more runs are allowed."""


@record(frozen=False, kw_only=False)
class Box:
    """Bounds by dim, with the relations between dims.

    `anchor` are sizes that run; probed bounds shrink towards them.  Batches (see `hints`) shrink
    first where runs cost too much, and last where they fail.
    """

    trials: Trials
    dims: dict[str, Dim]
    relations: Sequence[Relation]
    hints: DimHints
    anchor: Mapping[str, int]
    findings: list[Finding] = field(default_factory=list)
    _raised_minimums: dict[str, int] = field(default_factory=dict)
    """Minimums that ran alone but not together with others."""
    _large_images: bool = False
    """Whether images as detectors have them serve as the optimal ones."""
    _anchor_is_optimal: bool = False
    """Whether the anchor's sizes serve as the optimal ones."""

    def domain(self) -> Domain:
        """The box as a domain, each dim with its optimal size."""
        return Domain(
            dims={name: self._with_opt(name, dim) for name, dim in self.dims.items()},
            relations=(*self.relations, *self.trials.relations),
        )

    def fit(self) -> Domain:
        """Shrink probed bounds until the corners run.

        A mixed corner (some dims at their minimum, others at their maximum) that never runs is
        reported as AOTC-S013, a minimum that had to be raised as AOTC-S027.  Raises `Exhausted`,
        and AOTC-S005 if stated sizes do not run.
        """
        while not self._all_corners_run():
            # A smaller box has other corners.
            continue
        more = len(self.findings) - _MAX_REPORTED_CORNERS
        if more > 0:
            what = f"{more} more corners do not run together"
            self.findings[_MAX_REPORTED_CORNERS:] = [Finding(code="AOTC-S013", what=what)]
        self.findings += [
            Finding(
                code="AOTC-S027",
                what=f"size {was} runs, but not with the other dims at their minimum",
                where=name,
            )
            for name, was in self._raised_minimums.items()
        ]
        return self.domain()

    def _all_corners_run(self) -> bool:
        """Whether all corners were tried without shrinking a bound for a mixed one."""
        self.fit_largest()
        self._fit_smallest()
        self._fit_optimal()
        self.findings.clear()
        before = dict(self.dims)
        for ends in self._mixed_corners():
            if self.trials.gives_up(
                "corners with some dims at their minimum, others at their maximum"
            ):
                return True
            self._fit_mixed(ends)
            if self.dims != before:
                return False
        return True

    def fit_largest(self) -> None:
        """Lower the maximums until they run together; raises as `fit` does."""
        while True:
            corner = self.domain().corner("max")
            stop = self.trials.exceeded_limit(corner)
            if stop and self._halve(self.dims, stop):
                continue
            # Limits bound the search, but neither stated sizes nor the smallest possible box.
            outcome = self.trials.run(corner)
            if outcome.ok:
                return
            if self.trials.stop:
                raise Exhausted
            if not self._halve(self.dims, "combined"):
                raise not_running("the largest stated sizes do not run", corner, outcome.error)

    def _fit_smallest(self) -> None:
        """Raise the minimums until they run together."""
        while True:
            corner = self.domain().corner("min")
            outcome = self.trials.run(corner)
            if outcome.ok:
                return
            if self.trials.stop:
                raise Exhausted
            low = [
                n for n, d in self.dims.items() if _may_shrink(d) and d.min < self._anchor_size(n)
            ]
            if not low:
                raise not_running("the smallest sizes do not run", corner, outcome.error)
            # The smallest minimum is the likeliest to be too small.
            name = min(low, key=lambda dim: self.dims[dim].min)
            self._raise_minimum(name)

    def _raise_minimum(self, name: str) -> None:
        dim, anchor_size = self.dims[name], self._anchor_size(name)
        self._raised_minimums.setdefault(name, dim.min)
        step = dim.multiple_of
        size = min(anchor_size, max(dim.min + step, dim.min * 2))
        tested = {anchor_size, size, *(s for s in dim.tested if s >= size)}
        gaps = tuple(gap for gap in dim.gaps if gap > size)
        self.dims[name] = replace(dim, min=size, tested=tuple(sorted(tested)), gaps=gaps)

    def _fit_optimal(self) -> None:
        """Use the anchor's sizes as optimal ones if the usual ones do not run together.

        Where answers are for places of an image, large ones are usual, unless they cost much.
        """
        self._large_images = self.hints.dense
        corner = self.domain().corner("opt")
        if self.trials.exceeded_limit(corner, SHARE):
            self._large_images = False
        corner = self.domain().corner("opt")
        outcome = self.trials.run(corner)
        if outcome.ok:
            return
        if self.trials.stop:
            raise Exhausted
        self._anchor_is_optimal = True
        corner = self.domain().corner("opt")
        outcome = self.trials.run(corner)
        if not outcome.ok:
            raise not_running("the opt sizes do not run", corner, outcome.error)

    def _anchor_size(self, name: str) -> int:
        """The anchor's size of a dim, within its bounds."""
        dim = self.dims[name]
        return min(max(self.anchor[name], dim.min), dim.max)

    def _with_opt(self, name: str, dim: Dim) -> Dim:
        if dim.origin == "stated":
            return dim
        kind = self.hints.kind(name)
        opt = (
            self._anchor_size(name)
            if self._anchor_is_optimal
            else optimum(kind, dim, self._anchor_size(name), large=self._large_images)
        )
        return replace(dim, opt=opt, tested=tuple(sorted({*dim.tested, opt})))

    def _halve(self, dims: Collection[str], stop: Stop) -> bool:
        """Halve the widest probed one of `dims`; False if none can shrink."""
        shrinkable = [
            name
            for name, dim in self.dims.items()
            if name in dims and _may_shrink(dim) and dim.max > self._anchor_size(name)
        ]
        if not shrinkable:
            return False
        # The batch multiplies every cost, but it is rarely why a run fails.
        batches = [name for name in shrinkable if name in self.hints.leading]
        others = [name for name in shrinkable if name not in batches]
        first = (others if stop == "combined" else batches) or shrinkable
        widest = max(first, key=lambda name: self.dims[name].max)
        dim = self.dims[widest]
        half = max(self._anchor_size(widest), dim.max // 2 // dim.multiple_of * dim.multiple_of)
        self.dims[widest] = replace(
            dim,
            max=half,
            tested=tuple(sorted({size for size in dim.tested if size <= half} | {half})),
            gaps=tuple(size for size in dim.gaps if size <= half),
            stopped_by=stop,
        )
        return True

    def _mixed_corners(self) -> Iterator[tuple[str, ...]]:
        """For each mixed corner, the dims at their maximum; all others are at their minimum."""
        free = [name for name, dim in self.dims.items() if dim.max > dim.min]
        if len(free) <= _MAX_DIMS_OF_ALL_CORNERS:
            for count in range(1, len(free)):
                yield from itertools.combinations(free, count)
        else:
            for name in free:
                yield (name,)
                yield tuple(other for other in free if other != name)

    def _fit_mixed(self, ends: Sequence[str]) -> None:
        before = dict(self.dims)
        for halvings in range(_MAX_HALVINGS + 1):
            sizes = self._corner(ends)
            outcome = self.trials.run(sizes)
            if outcome.ok:
                return
            if self.trials.stop:
                # What is proven so far stays proven: this corner was not seen to fail.
                self.dims = before
                return
            if halvings == _MAX_HALVINGS or not self._halve(ends, "combined"):
                break
        self.dims = before
        sizes = self._corner(ends)
        error = self.trials.run(sizes).error
        if all(dim.origin == "stated" for dim in self.dims.values() if dim.max > dim.min):
            raise not_running("stated sizes do not run together", sizes, error)
        what = f"these sizes do not run together: {error}"
        self.findings.append(Finding(code="AOTC-S013", what=what, where=sizes_in_words(sizes)))

    def _corner(self, ends: Collection[str]) -> dict[str, int]:
        domain = self.domain()
        sizes = {name: dim.max if name in ends else dim.min for name, dim in domain.dims.items()}
        return domain.complete(sizes)


def _may_shrink(dim: Dim) -> bool:
    """Whether the bounds of `dim` may change: they were probed, not stated."""
    return dim.origin == "probed"


def not_running(what: str, sizes: Mapping[str, int], error: str) -> AotcError:
    """AOTC-S005 at `sizes`."""
    return AotcError("AOTC-S005", f"{what}: {sizes_in_words(sizes)}", found=error)


# Ranges with gaps: both ends run, but most sizes between them do not.


def sampled_between(low: int, high: int, grid: int = 1) -> list[int]:
    """Sizes on `grid` strictly between `low` and `high`, spread over the range, at most seven."""
    inner = {int(low + (high - low) * share) // grid * grid for share in _SAMPLED_SHARES}
    return sorted(size for size in inner if low < size < high)


def without_gaps(
    low: int,
    high: int,
    runs_at: Callable[[int], bool],
    gives_up: Callable[[], bool] = lambda: False,
) -> tuple[int, int, int, tuple[int, ...]]:
    """Bounds and grid on which all sampled sizes run, and the sizes that still fail.

    Pooling that rounds down and up again leaves gaps: the bounds run, most sizes between do not.
    If no grid avoids them, or the search `gives_up`, the range stays as it is, with the sizes that
    were seen to fail.
    """
    failed: list[int] = []
    for grid in (1, *GRIDS):
        if grid > 1 and gives_up():
            break
        first, last = -(-low // grid) * grid if low else 0, high // grid * grid
        inner = [size for size in sampled_between(low, high, grid) if first < size < last]
        if grid > 1:
            first = first or grid
            enough = len(inner) >= (_MIN_SAMPLES if grid > _USUAL_GRID else 1)
            if not enough or not (runs_at(first) and runs_at(last)):
                continue
        broken = [size for size in inner if not runs_at(size)]
        if not broken and grid > 1 and last <= first + _MAX_EXHAUSTIVE * grid:
            broken = [size for size in range(first, last, grid) if not runs_at(size)]
        if not broken:
            return first, last, grid, ()
        failed += broken
    return low, high, 1, tuple(sorted(set(failed)))


# How far the dims of a box may grow, by the estimated cost of a run, before any is run.
#
# First each dim grows to sizes that users commonly choose, in `STAGES`; then all
# grow further while a run costs a share of the limits.


@record(frozen=False, kw_only=False)
class Growth:
    """Chooses the maximum of each dim from its `rungs`, which rise from a size that runs.

    `exceeded_limit` estimates the largest corner of a box: the limit of which it exceeds a share.
    """

    rungs: Mapping[str, Sequence[int]]
    hints: DimHints
    exceeded_limit: Callable[[Mapping[str, int], float], Stop]

    def choose(self) -> dict[str, tuple[int, Stop]]:
        """By dim: the largest size, and what ended its growth (`size`: it is the last rung)."""
        sizes = {dim: rungs[0] for dim, rungs in self.rungs.items()}
        stops: dict[str, Stop] = dict.fromkeys(self.rungs, "")
        groups = self._groups()
        for stage in STAGES:
            asked = [group for group in groups if self.hints.kind(group[0]) in stage]
            self._grow(asked, sizes, stops, maximums=stage)
        batches = [group for group in groups if self.hints.kind(group[0]) == "batch"]
        for phase in ([group for group in groups if group not in batches], batches):
            self._grow(phase, sizes, stops)
        return {
            dim: (size, "size" if size == self.rungs[dim][-1] else stops[dim])
            for dim, size in sizes.items()
        }

    def _groups(self) -> list[tuple[str, ...]]:
        """Dims that grow together: height and width of one image, so that it stays square."""
        images = [tuple(d for d in group if d in self.rungs) for group in self.hints.images]
        images = [group for group in images if group]
        inside = {dim for group in images for dim in group}
        return [*images, *((dim,) for dim in self.rungs if dim not in inside)]

    def _grow(
        self,
        groups: Sequence[tuple[str, ...]],
        sizes: dict[str, int],
        stops: dict[str, Stop],
        maximums: Mapping[Kind, int] | None = None,
    ) -> None:
        """Raise `sizes` rung by rung, the `groups` in turn, up to `maximums` by kind.

        Without `maximums`, until a run would cost its share of the limits.
        """
        waiting = list(groups)
        while waiting:
            for group in list(waiting):
                following = {
                    dim: next((size for size in self.rungs[dim] if size > sizes[dim]), None)
                    for dim in group
                }
                larger = {
                    dim: size
                    for dim, size in following.items()
                    if size is not None
                    and (maximums is None or size <= maximums[self.hints.kind(dim)])
                }
                # The smaller side of an image goes first.
                larger = {d: size for d, size in larger.items() if size == min(larger.values())}
                if not larger:
                    waiting.remove(group)
                    continue
                large = maximums is None and max(larger.values()) > _USUAL_SIZE
                share = _SMALL_SHARE if large else SHARE if maximums is None else 1.0
                stop = self.exceeded_limit({**sizes, **larger}, share)
                if stop:
                    stops |= dict.fromkeys(group, stop)
                    waiting.remove(group)
                else:
                    sizes |= larger
