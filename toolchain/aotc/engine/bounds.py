"""How far one dim can go from sizes that run: downwards, upwards, and on which grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotc.contract.shapes import Dim, Relation
from aotc.engine.gaps import without_gaps
from aotc.engine.relations import Move
from aotc.engine.trials import Stop, Trials

# How many multiples are tried at either end of a range for the first that runs.
_ENDS = 4


@dataclass(slots=True)
class Bounder:
    """Bounds of `dim`, with the other dims as in `base`, and those that follow moved along."""

    trials: Trials
    dim: str
    base: Mapping[str, int]
    relations: Sequence[Relation] = ()
    _tested: set[int] = field(default_factory=set)

    def bounds(self, move: Move | None) -> Dim:
        """The range that runs: its ends, its grid, and the sizes seen to fail within."""
        size = self.base[self.dim]
        if move is None:
            return Dim(min=size, max=size, opt=size, tested=(size,), stopped_by="error")
        step = move.step
        self._tested.add(size)
        low = self._lowest(size, step)
        high, stop = self._highest(step)
        grid = step if low % step == 0 and high % step == 0 else 1
        gaps: tuple[int, ...] = ()
        if grid == 1:
            low, high, grid, gaps = without_gaps(low, high, self._works)
        return Dim(
            min=low,
            max=high,
            opt=low,
            multiple_of=grid,
            tested=tuple(sorted(self._tested)),
            gaps=gaps,
            stopped_by=stop,
        )

    def on_grid(self, dim: Dim, step: int, least: int) -> Dim | None:
        """`dim` held to multiples of `step` from `least` on; None where none runs.

        The ends move inwards to multiples that run; what fails between them is a gap.
        """
        grid = math.lcm(dim.multiple_of, step)
        first = -(-max(dim.min, least) // grid) * grid
        last = dim.max // grid * grid
        sizes = range(first, last + 1, grid)
        low = next((size for size in sizes[:_ENDS] if self._works(size)), None)
        high = next((size for size in sizes[::-1][:_ENDS] if self._works(size)), None)
        if (low is None or high is None) and self.trials.stop:
            # No more runs: what is known to run is what is left.
            low = high = next((size for size in sorted(self._tested) if size in sizes), None)
        if low is None or high is None:
            return None
        return replace(
            dim,
            min=low,
            max=high,
            opt=low,
            multiple_of=grid,
            tested=tuple(size for size in sorted(self._tested) if size in sizes),
            gaps=tuple(size for size in dim.gaps if low < size < high and size % grid == 0),
        )

    def _works(self, size: int) -> bool:
        sizes = self.trials.complete({**self.base, self.dim: size}, self.relations)
        if min(sizes.values()) < 0:
            return False
        outcome = self.trials.run(sizes)
        moved = {sizes[dim] for dim in sizes if sizes[dim] != self.base.get(dim)}
        ok = outcome.ok and not (outcome.empty and 0 in moved)
        if ok:
            self._tested.add(size)
        return ok

    def _lowest(self, base: int, step: int) -> int:
        first = base % step or step
        if self._works(first):
            return 0 if first == step and self._works(0) else first
        return _bisect(base, first, step, self._works)

    def _highest(self, step: int) -> tuple[int, Stop]:
        good, grow = self.base[self.dim], step
        limit = self.trials.limits.max_size
        aligned = good % step == 0
        while True:
            size = good + grow
            if good % (2 * step) == 0 and good >= step:
                size = good * 2
            if size > limit:
                size = limit // step * step if aligned else good
                if size <= good:
                    return good, "size"
            stop = self.trials.too_much(
                self.trials.complete({**self.base, self.dim: size}, self.relations)
            )
            if stop:
                return good, stop
            if not self._works(size):
                if self.trials.exhausted():
                    return good, self.trials.stop
                return _bisect(good, size, step, self._works), "error"
            good, grow = size, max(grow, step)


def _bisect(good: int, bad: int, step: int, works: Callable[[int], bool]) -> int:
    """The size next to where it fails, between one that works and one that does not."""
    while abs(bad - good) > step:
        middle = min(good, bad) + abs(bad - good) // 2 // step * step
        if works(middle):
            good = middle
        else:
            bad = middle
    return good
