"""The range of one dim around sizes that run: lower bound, upper bound and grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from aotc.contract.shapes.domain import Dim, Relation, Stop
from aotc.probing.sizes.found_relations import Move
from aotc.probing.sizes.gaps import GRIDS, sampled_between, without_gaps
from aotc.probing.sizes.growth import SHARE
from aotc.probing.sizes.trials import Trials
from aotc.probing.sizes.usual_sizes import sizes_beyond
from aotc.records import field, record, replace

# How many multiples are tried at either end of a range until one runs.
_MAX_END_TRIES = 4
# How many sizes beyond a failure are tried before it counts as the upper bound.
_MAX_SIZES_BEYOND = 24


@record(frozen=False, kw_only=False)
class Bounder:
    """Searches the range of `dim`, with all other dims as in `base` or as `relations` require.

    Size 0 is tried if `may_be_empty`.  `declared_sizes` appear in the model's declaration; like
    usual sizes, they are tried beyond a failure.
    """

    trials: Trials
    dim: str
    base: Mapping[str, int]
    relations: Sequence[Relation] = ()
    may_be_empty: bool = False
    declared_sizes: Sequence[int] = ()
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
        if grid == 1:
            low, high, grid, gaps = without_gaps(low, high, self._runs_at)
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
            low = _bisect(anchor_size, below[-1], 1, self._runs_at)
        if above:
            high = _bisect(anchor_size, above[0], 1, self._runs_at)
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
            empty = self.may_be_empty and first == step and self._runs_at(0)
            return 0 if empty else first
        return _bisect(base, first, step, self._runs_at)

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
                return _bisect(good, size, step, self._runs_at), "error"
            good, grow = size, max(grow, step)
        return good, "size"

    def _coarser_grid(self, high: int, step: int, limit: int) -> tuple[int, int, int] | None:
        """Lowest size, step, and a size above `high`, for a grid that reaches further."""
        for size in sizes_beyond(high, limit, step, self.declared_sizes)[:_MAX_SIZES_BEYOND]:
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


def _bisect(good: int, bad: int, step: int, runs_at: Callable[[int], bool]) -> int:
    """The last size that works on the way from `good`, which works, to `bad`, which does not."""
    while abs(bad - good) > step:
        middle = min(good, bad) + abs(bad - good) // 2 // step * step
        if runs_at(middle):
            good = middle
        else:
            bad = middle
    return good
