"""The step by which each dim can move from sizes that run, alone or together with others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.found_relations import Move
from aotc.probing.sizes.trials import Trials
from aotc.records import field, record

_STEPS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)
# A larger size may have too many divisors to try.
_MAX_DIVIDED = 8192
_DIRECTIONS = (1, -1)
# This many similar dims of one size, such as the past of all layers, are moved as one unit.
_MIN_UNIT = 3


@record(frozen=False, kw_only=False)
class Mover:
    """Tries moves from `base`; a batch (see `hints`) never needs another dim's step."""

    trials: Trials
    base: Mapping[str, int]
    hints: DimHints
    _units: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Dims that are moved as one unit, by the first of them."""

    def moves(self, dims: Sequence[str]) -> dict[str, Move | None]:
        """How each of `dims` can move; None: in no way that was tried.

        A dim that moves alone is not tried as a partner.  Dims that move together are searched
        once; similar dims are assumed to move as the first of them does.
        """
        firsts = self._unit_firsts(dims)
        coupled = [dim for dim in firsts if not self._is_free(dim)]
        found: dict[str, Move | None] = {dim: self._move((dim,), 1) for dim in firsts}
        together: list[Move] = []
        for dim in coupled:
            known = next((move for move in together if dim in move.dims), None)
            found[dim] = move = known or self.move(dim, coupled)
            if move is not None and known is None and len(move.dims) > 1:
                together.append(move)
        # A dim that moves alone in one direction may turn out to be part of a later set.
        for dim in coupled:
            move = found[dim]
            if move is not None and len(move.dims) == 1:
                found[dim] = next((other for other in together if dim in other.dims), move)
        for first, unit in self._units.items():
            found |= dict.fromkeys(unit, found[first])
        return {dim: found[dim] for dim in dims}

    def move(self, dim: str, movable: Sequence[str]) -> Move | None:
        """The smallest step of `dim` and the dims that move along; None if it cannot move."""
        others = [other for other in movable if other != dim]
        # Also downwards, as the base may be the largest size.
        failing = [direction for direction in _DIRECTIONS if not self._runs((dim,), direction)]
        if not failing:
            return self._move((dim,), 1)
        if self.trials.stop:
            return None
        for direction in failing:
            for other in others:
                if self._runs((dim, other), direction):
                    return self._move((dim, other), 1)
            for together in self._candidate_sets(dim, others):
                if self._runs(together, direction):
                    return self._move(self._smallest_set(together, direction), 1)
        if len(failing) < len(_DIRECTIONS):
            return self._move((dim,), 1)
        for step in self._steps(dim):
            for direction in _DIRECTIONS:
                if self._runs((dim,), step * direction):
                    return self._move((dim,), step)
            for other, direction in itertools.product(others, _DIRECTIONS):
                if dim in self.hints.leading or self.base[other] != self.base[dim]:
                    continue
                if self._runs((dim, other), step * direction):
                    return self._move((dim, other), step)
        return None

    def _steps(self, dim: str) -> list[int]:
        """Steps above 1: the stated grid, usual steps, and divisors of the size in the base."""
        size = self.base[dim]
        divisors = range(_STEPS[-4] + 1, size + 1) if size <= _MAX_DIVIDED else ()
        steps = sorted({*_STEPS, *(step for step in divisors if size % step == 0)})
        grid = self.hints.grids.get(dim)
        return steps if grid is None else list(dict.fromkeys((grid, *steps)))

    def _move(self, dims: Sequence[str], step: int) -> Move:
        return Move(tuple(self._with_units(dims)), step)

    def _with_units(self, dims: Sequence[str]) -> list[str]:
        """`dims`, with all dims that are in one unit with them."""
        return [member for dim in dims for member in self._units.get(dim, (dim,))]

    def _unit_firsts(self, dims: Sequence[str]) -> list[str]:
        """`dims`, but of similar ones that do not move alone only the first."""
        waiting = list(dims)
        firsts = []
        while waiting:
            dim = waiting.pop(0)
            firsts.append(dim)
            alike = [other for other in waiting if self.base[other] == self.base[dim]]
            similar = self.hints.similar_to(dim, alike)
            if len(similar) + 1 >= _MIN_UNIT and not self._is_free(dim):
                self._units[dim] = (dim, *similar)
                waiting = [other for other in waiting if other not in similar]
        return firsts

    def _is_free(self, dim: str) -> bool:
        """Whether `dim` moves alone in both directions: in one, another dim may still bound it."""
        return all(self._runs((dim,), direction) for direction in _DIRECTIONS)

    def _candidate_sets(self, dim: str, others: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Sets of three dims or more that include `dim`, likeliest first.

        Similar dims; these with one other dim, or with one other group of similar dims; all dims;
        all but one dim, or but one group.
        """
        similar = self.hints.similar_to(dim, others)
        rest = [other for other in others if other not in similar]
        kinds: list[list[str]] = []
        for other in rest:
            if not any(other in kind for kind in kinds):
                kinds.append(self.hints.similar_to(other, rest))
        tried: set[frozenset[str]] = set()
        for chosen in (
            similar,
            *([*similar, other] for other in rest),
            *([*similar, *kind] for kind in kinds),
            [*others],
            *([o for o in others if o != skipped] for skipped in rest),
            *([o for o in others if o not in kind] for kind in kinds),
        ):
            key = frozenset(chosen)
            if len(key) > 1 and key not in tried:
                tried.add(key)
                yield (dim, *chosen)

    def _smallest_set(self, together: Sequence[str], direction: int) -> tuple[str, ...]:
        """Of dims that can move together, those that the first cannot move without.

        Halves are left out, then quarters, down to single dims.
        """
        dim, *kept = together
        size = len(kept)
        while size > 1:
            size = -(-size // 2)
            start = 0
            while start < len(kept):
                fewer = kept[:start] + kept[start + size :]
                if self._runs((dim, *fewer), direction):
                    kept = fewer
                else:
                    start += size
        return (dim, *kept)

    def _runs(self, dims: Sequence[str], shift: int) -> bool:
        """Whether the model runs with `dims` and their units shifted."""
        if self.trials.stop:
            # Without more runs, do not even go through the many ways to move.
            return False
        moved = self._with_units(dims)
        sizes = {**self.base, **{dim: self.base[dim] + shift for dim in moved}}
        return min(sizes[dim] for dim in moved) > 0 and self.trials.run(sizes).ok
