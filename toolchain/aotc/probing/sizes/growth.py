"""How far the dims of a box may grow, by the estimated cost of a run, before any is run.

First each dim grows to the size that users commonly choose (`usual_sizes`), lengths and images
before batches of more than 2; then all grow further while a run costs a share of the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aotc.contract.shapes.domain import Stop
from aotc.probing.sizes.dim_hints import DimHints, Kind
from aotc.probing.sizes.usual_sizes import TARGETS
from aotc.records import record

# Share of the limits beyond usual sizes: a build runs the largest sizes several times.
SHARE: Final = 1 / 8
_PAIR: Final = 2


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
                stop = self.exceeded_limit({**sizes, **larger}, SHARE if maximums is None else 1.0)
                if stop:
                    stops |= dict.fromkeys(group, stop)
                    waiting.remove(group)
                else:
                    sizes |= larger
