"""Which dims are derived from others: inferred from how they can move, then put to the test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from aotc.base.records import field, record, replace
from aotc.sizes.dim_hints import DimHints
from aotc.sizes.trials import Trials
from aotc.spec.shapes import DimRange, Relation

_STEPS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)
# A larger size may have too many divisors to try.
_MAX_DIVIDED = 8192
_DIRECTIONS = (1, -1)
# This many similar dims of one size, such as the past of all layers, are moved as one unit.
_MIN_UNIT = 3
_PRIMES: Final = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_SHIFTS: Final = (3, 5, 7, 11, 13, 17, 19, 23)
_BATCH: Final = 2
# A second shift of a derived dim, which keeps its remainders modulo 2, 3, 4, 6 and 8.
_FAR_SHIFT: Final = 24
# How many other dims lend their size to a derived dim in the search for a counterexample.
_MAX_OTHER_DIMS: Final = 12


@record(kw_only=False)
class Move:
    """Dims that move together by multiples of `step`; the first is the one asked about."""

    dims: tuple[str, ...]
    step: int


def relations_of(
    base: Mapping[str, int],
    moves: Mapping[str, Move | None],
    bounded: Collection[str],
    stated: Collection[str] = (),
) -> tuple[Relation, ...]:
    """Relations among dims that only move together, at sizes `base`.

    Each set of dims that moves together is led by one dim that is in no other set, preferably one
    of `bounded`, then of `stated`; every further dim is the sum of those that lead its sets.
    """
    joint_moves: list[Move] = []
    for move in moves.values():
        known = move is None or any(set(move.dims) == set(joint.dims) for joint in joint_moves)
        if move is not None and len(move.dims) > 1 and not known:
            joint_moves.append(move)
    leads: dict[str, Move] = {}
    for joint in joint_moves:
        own = [
            d
            for d in moves
            if d in joint.dims and sum(d in other.dims for other in joint_moves) == 1
        ]
        own.sort(key=lambda dim: (dim not in bounded, dim not in stated))
        if own:
            leads[own[0]] = joint
    result = []
    for dim in moves:
        terms = tuple(lead for lead, joint in leads.items() if dim in joint.dims and dim != lead)
        if terms and dim not in leads:
            constant = base[dim] - sum(base[term] for term in terms)
            result.append(Relation(dim=dim, terms=terms, constant=constant))
    return tuple(result)


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


# Whether a relation that was found is a law: it holds elsewhere too, and breaking it fails.
#
# A relation is read off a few moves from one base, where it may hold by accident. So it is tried at
# a second base, whose sizes share no factor, and broken at both.


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
        # A cache of fixed length is as long as all that it may hold.
        points += [{**second_base, term: second_base[relation.dim]} for term in relation.terms]
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
