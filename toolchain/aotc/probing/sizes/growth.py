"""How far the dims of a box go by what a run would cost, before any of it is run.

First each dim goes to the size that users of such a model choose (`usual_sizes`), lengths and
images before batches of more than 2; then all go further, while a run costs a share of what is
allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aotc.contract.shapes.domain import Stop
from aotc.probing.sizes.dim_hints import DimHints, Kind
from aotc.probing.sizes.usual_sizes import TARGETS

# Of the limits, beyond usual sizes: a build runs the largest sizes several times.
SHARE: Final = 1 / 8
_PAIR: Final = 2


@dataclass(slots=True)
class Growth:
    """Chooses the largest size of each dim from its `rungs`, which rise from one that runs.

    `exceeded_limit` prices the largest corner of a box: the limit of which it exceeds a share.
    """

    rungs: Mapping[str, Sequence[int]]
    hints: DimHints
    exceeded_limit: Callable[[Mapping[str, int], float], Stop]

    def choose(self) -> dict[str, tuple[int, Stop]]:
        """The largest size by dim, and what ends it: `size` where it is the last rung."""
        sizes = {dim: rungs[0] for dim, rungs in self.rungs.items()}
        stops: dict[str, Stop] = dict.fromkeys(self.rungs, "")
        groups = self._groups()
        batches = [group for group in groups if self.hints.kind(group[0]) == "batch"]
        others = [group for group in groups if group not in batches]
        self._grow(batches, sizes, stops, maximums={"batch": _PAIR})
        for phase in (others, batches):
            self._grow(phase, sizes, stops, maximums=TARGETS)
        for phase in (others, batches):
            self._grow(phase, sizes, stops)
        return {
            dim: (size, "size" if size == self.rungs[dim][-1] else stops[dim])
            for dim, size in sizes.items()
        }

    def _groups(self) -> list[tuple[str, ...]]:
        """Dims that grow together: height and width of one image, so that it is square."""
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
        """Raise `sizes` by one rung of each of `groups` in turn, to `maximums` by kind.

        Without `maximums` a run costs a share of what is allowed.
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
                stop = self.exceeded_limit({**sizes, **larger}, SHARE if maximums is None else 1.0)
                if stop:
                    stops |= dict.fromkeys(group, stop)
                    waiting.remove(group)
                else:
                    sizes |= larger
