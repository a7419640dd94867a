"""Whether a relation that was found is a law: it holds elsewhere too, and breaking it fails.

A relation is read off a few moves from one base, where it may hold by accident.  So it is tried at
a second base, whose sizes share no factor, and broken at both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Relation
from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.found_relations import Move
from aotc.probing.sizes.trials import Trials
from aotc.records import record, replace

_PRIMES: Final = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_SHIFTS: Final = (3, 5, 7, 11, 13, 17, 19, 23)
_BATCH: Final = 2
# A second shift of a derived dim, which keeps its remainders modulo 2, 3, 4, 6 and 8.
_FAR_SHIFT: Final = 24
# How many other dims lend their size to a derived dim in the search for a counterexample.
_MAX_OTHER_DIMS: Final = 12


@record(kw_only=False)
class Challenge:
    """Tests `relations` that were found at `base`.

    `moves` tells how each dim moves from there; dims it lacks stay as in `base`.
    """

    trials: Trials
    hints: DimHints
    base: Mapping[str, int]
    moves: Mapping[str, Move | None]
    relations: Sequence[Relation]
    stated: Mapping[str, DimRange]

    def second_base(self) -> dict[str, int] | None:
        """Other sizes of all dims that can move: the relations hold there, and the model runs."""
        for point in self._points():
            sizes = self.trials.complete(point, self.relations)
            if sizes != self.base and min(sizes.values()) > 0 and self.trials.run(sizes).ok:
                return sizes
            if self.trials.stop:
                break
        return None

    def counterexample(self) -> dict[str, int] | None:
        """Sizes that run and break a relation, for when there is no second base.

        At each point one derived dim gets the size of another dim instead, or its size in `base`.
        """
        for point in self._points():
            sizes = self.trials.complete(point, self.relations)
            for relation in self.relations:
                others = [dim for dim in sizes if dim != relation.dim][:_MAX_OTHER_DIMS]
                instead = [self.base[relation.dim], *(sizes[other] for other in others)]
                for size in dict.fromkeys(instead):
                    if self.trials.stop:
                        return None
                    tried = self.trials.complete({**sizes, relation.dim: size})
                    if size != sizes[relation.dim] and self.trials.run(tried).ok:
                        return tried
        return None

    def judge(self, second_base: Mapping[str, int] | None) -> tuple[Relation, ...]:
        """The relations, enforced where nothing that breaks them was seen to run.

        Also not enforced: relations that were not tried at a second base, and those whose constant
        or factor may be a dim that only runs at one size.
        """
        stuck = {
            self.base[dim]
            for dim, move in self.moves.items()
            if move is None and dim not in self.hints.known
        }
        return tuple(
            replace(
                relation,
                enforced=second_base is not None
                and not (relation.constant and stuck)
                and 1 not in stuck
                and not self._counterexample_to(relation, second_base)
                and not self.trials.stop,
            )
            for relation in self.relations
        )

    def _counterexample_to(
        self, relation: Relation, second_base: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Sizes that run and break `relation`.

        A size of 1 may be broadcast; and dims whose sum has to be even, say, only move together.
        """
        step = self._step(relation.dim)
        size = self.base[relation.dim]
        points = [{**self.base, relation.dim: size + sign * step} for sign in (1, -1)]
        size = second_base[relation.dim]
        sizes = (size + step, size - step, size + math.lcm(step, _FAR_SHIFT))
        points += [{**second_base, relation.dim: moved} for moved in sizes]
        dims = dict.fromkeys((relation.dim, *relation.terms))
        # A stated range may start at 1, where broadcasting does not show.
        start = second_base if min(second_base[dim] for dim in dims) > 1 else self.base
        points += [{**start, dim: 1} for dim in dims]
        for point in points:
            tried = self.trials.complete(point)
            possible = min(tried.values()) > 0 and relation.is_broken(tried)
            if possible and self.trials.run(tried).ok:
                return tried
        return None

    def _points(self) -> Iterator[dict[str, int]]:
        """Sizes of the independent dims: small ones without a common factor; the base, shifted."""
        derived = {relation.dim for relation in self.relations}
        leads = [dim for dim in self.base if dim not in derived]
        small, near, far = dict(self.base), dict(self.base), dict(self.base)
        count = 0
        for dim in leads:
            move, spec = self.moves.get(dim), self.stated.get(dim)
            if spec is not None and spec.bounded:
                ends = [size for size in spec.compiled_bounds() if size != self.base[dim]]
                for point in (small, near, far):
                    point[dim] = ends[0] if ends else self.base[dim]
            elif move is not None:
                step = math.lcm(move.step, spec.multiple_of if spec is not None else 1)
                rest = self.base[dim] % step
                near[dim] += step * (2 if dim in self.hints.leading else _repeating(_SHIFTS, count))
                far[dim] += step * (
                    4 if dim in self.hints.leading else _repeating(_SHIFTS, count + 3)
                )
                if dim in self.hints.leading:
                    small[dim] = _BATCH if step == 1 else rest + step
                    continue
                small[dim] = _repeating(_PRIMES, count) if step == 1 else rest + step * (count + 1)
                count += 1
        yield from (small, near, far)

    def _step(self, dim: str) -> int:
        move = self.moves.get(dim)
        return move.step if move is not None else 1


def _repeating(sizes: Sequence[int], index: int) -> int:
    return sizes[index % len(sizes)]
