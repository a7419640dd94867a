"""By what step each dim can move from sizes that run, alone or together with which others."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from aotc.engine.relations import Move
from aotc.engine.trials import Trials

_STEPS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Mover:
    """Tries moves from `base`; `leading` names batches, which never need another dim's step."""

    trials: Trials
    base: Mapping[str, int]
    leading: Collection[str]

    def move(self, dim: str, movable: Sequence[str]) -> Move | None:
        """The smallest step of `dim`, with the other dims that have to move along; None: none."""
        others = [other for other in movable if other != dim]
        # Downwards as well, as the base may be the largest size.
        for way in (1, -1):
            if self._runs((dim,), way):
                return Move((dim,), 1)
            for other in others:
                if self._runs((dim, other), way):
                    return Move((dim, other), 1)
            if len(others) > 1 and self._runs((dim, *others), way):
                return Move(self._fewest(dim, others, way), 1)
        for step, way in itertools.product(_STEPS, (1, -1)):
            if self._runs((dim,), step * way):
                return Move((dim,), step)
            for other in others if dim not in self.leading else ():
                if self.base[other] == self.base[dim] and self._runs((dim, other), step * way):
                    return Move((dim, other), step)
        return None

    def _fewest(self, dim: str, others: Sequence[str], way: int) -> tuple[str, ...]:
        """Of the dims that can move together, those that `dim` cannot move without."""
        together = [dim, *others]
        for other in others:
            if self._runs(tuple(d for d in together if d != other), way):
                together.remove(other)
        return tuple(together)

    def _runs(self, dims: tuple[str, ...], shift: int) -> bool:
        sizes = {**self.base, **{dim: self.base[dim] + shift for dim in dims}}
        return min(sizes[dim] for dim in dims) > 0 and self.trials.run(sizes).ok
