"""Faults from a seed: what a broken kernel, scale or layout does to a slice of an output.

A fault changes one slice in every fixture.  It counts if the slice then differs from the
reference, and from the honest answer beneath, by the bar or more, as a share of its own scale:
10 %, and 30 % where a variant computes in integers.  Of labels and truths that share of elements
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from benchmarks.judge.slices import (
    LEAST_ELEMENTS,
    Array,
    Scales,
    Slice,
    error_at,
    fill_of,
    is_exact,
)

FLOAT_BAR: Final = 0.1
INTEGER_BAR: Final = 0.3
INTEGERS: Final = frozenset({"int8", "int4", "quantized"})
# A slice that is no larger is rounding noise of the original.
_NOISE_FACTOR: Final = 100.0
# Two runs of a quantized model differ by steps, which no scale is a hundred times of.
_STEP_FACTOR: Final = 10.0
_DROWNED_SHARE: Final = 0.5
_TRIES: Final = 12
_MOST_SVD: Final = 1 << 18


# Of a slice: it can be judged; it is noise of the original, or too small; or the honest error is
# not far from a fault.
JUDGED: Final = 0
NOISE: Final = 1
DROWNED: Final = 2
# Elements, scales and errors.
Measured = tuple[Array, Array, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An output with a fault, and the slice that shows it best."""

    kind: str
    where: Slice
    elements: int
    scale: float
    error: float
    """Against the reference, as a share of the scale."""
    answers: list[Array]
    """By fixture."""


class Target:
    """One output of an honest variant over all fixtures, whose slices faults may change.

    `noise` is the original in another order or in float64, by fixture, and `others` what the same
    variant is off by at other seeds.
    """

    def __init__(
        self,
        reference: Sequence[Array],
        honest: Sequence[Array],
        noise: Sequence[Array],
        arithmetic: str,
        parts: Sequence[Slice] = (),
        others: Sequence[Scales] = (),
    ) -> None:
        self.reference = list(reference)
        self.honest = list(honest)
        self.fill = fill_of(reference)
        self.exact = is_exact(reference[0])
        self.joined = tuple(parts)
        # Where an axis has one index, a slice of it is the whole output.
        single = any(set(sizes) == {1} for sizes in zip(*(e.shape for e in reference), strict=True))
        whole = (Slice(0, 0, max(map(len, reference))),) if single else ()
        self.parts = (*parts, *whole)
        self.arithmetic = arithmetic
        coarse = arithmetic in INTEGERS or (self.exact and arithmetic != "float32")
        self.bar = INTEGER_BAR if coarse else FLOAT_BAR
        self.scales = Scales(reference, honest, self.fill)
        self._others = tuple(others)
        self._noise = Scales(reference, noise, self.fill)

    def _states(
        self, least: Array, measured: Measured, noise: Measured, others: Sequence[Measured]
    ) -> Array:
        """By slice, why it cannot be judged: one of the states below, or `JUDGED`."""
        elements, scales, _ = measured
        most = _DROWNED_SHARE * self.bar
        states = np.full(len(elements), JUDGED)
        for _, usual, errors in (measured, *others):
            known = min(len(usual), len(states))
            drowned = (errors > 0) & (errors >= most * usual)
            states[:known][drowned[:known]] = DROWNED
        factor = _STEP_FACTOR if self.arithmetic == "quantized" else _NOISE_FACTOR
        if not self.exact:
            states[scales < factor * noise[2]] = NOISE
        states[(elements < least) | ~(scales > 0)] = NOISE
        return states

    def state(self, where: Slice) -> int:
        """That of one slice."""
        others = [each.at(where) for each in self._others]
        least = np.array([LEAST_ELEMENTS])
        if where.stop == where.start + 1:
            least = self.scales.least[where.axis][where.start : where.stop]
        (state,) = self._states(least, self.scales.at(where), self._noise.at(where), others)
        return int(state)

    @cached_property
    def states(self) -> list[Array]:
        """By axis with more than one index, then of the parts: the state of each slice."""
        found = [
            self._states(
                self.scales.least[axis],
                self.scales.axes[axis],
                self._noise.axes[axis],
                [each.axes[axis] for each in self._others],
            )
            for axis in self.wide
        ]
        if self.parts:
            found.append(np.array([self.state(each) for each in self.parts]))
        return found

    @cached_property
    def wide(self) -> list[int]:
        """The axes with more than one index."""
        return [at for at, (counts, _, _) in enumerate(self.scales.axes) if len(counts) > 1]

    @cached_property
    def counted(self) -> list[list[Slice]]:
        """The slices that are judged: by axis, those at one index, then the parts."""
        found = [
            [Slice(axis, int(at), int(at) + 1) for at in np.flatnonzero(states == JUDGED)]
            for axis, states in zip(self.wide, self.states, strict=False)
        ]
        found.append([each for each in self.parts if self.state(each) == JUDGED])
        return [group for group in found if group]

    def scale_at(self, where: Slice) -> float:
        """The scale of one slice."""
        return float(self.scales.at(where)[1][0])

    def found(self, kind: str, where: Slice, answers: list[Array]) -> Fault | None:
        """The fault that `answers` have in a slice, if it is one that counts."""
        changed = error_at(where, self.reference, answers, self.fill)
        moved = error_at(where, self.honest, answers, self.fill)
        elements, scale, _ = (float(each[0]) for each in self.scales.at(where))
        least = self.bar * scale
        if not (changed >= least and moved >= least):
            return None
        return Fault(
            kind=kind,
            where=where,
            elements=int(elements),
            scale=scale,
            error=changed / scale,
            answers=answers,
        )


def fault(kind: str, target: Target, rng: np.random.Generator) -> Fault | None:
    """A fault of one of `KINDS`, or None where the output has no slice that it changes enough."""
    for _ in range(_TRIES if target.counted else 0):
        made = KINDS[kind](target, rng)
        if made is not None:
            where, answers = made
            if found := target.found(kind, where, answers):
                return found
    return None


# What a kind makes: the slice, and the answers with the fault.
_Made = tuple[Slice, list[Array]] | None
_Kind = Callable[[Target, np.random.Generator], _Made]


def _drawn(target: Target, rng: np.random.Generator) -> Slice:
    group = target.counted[int(rng.integers(len(target.counted)))]
    return group[int(rng.integers(len(group)))]


def _like(values: Array, old: Array) -> Array:
    """`values` in the type of `old`."""
    if old.dtype.kind in "iu":
        limits = np.iinfo(old.dtype)
        return np.clip(np.rint(values), limits.min, limits.max).astype(old.dtype)
    return values.astype(old.dtype)


def _changed(target: Target, where: Slice, change: Callable[[Array, int], Array]) -> list[Array]:
    """The honest answers with a slice changed; fill stays, and so do fixtures without the slice.

    `change` is called with what is no fill, flat, and the number of the fixture.
    """
    answers = []
    for at, (honest, fill) in enumerate(zip(target.honest, target.fill, strict=True)):
        made = honest.copy()
        view, kept = where.of(made), ~where.of(fill)
        if kept.any():
            old = view[kept]
            view[kept] = _like(change(old.astype(np.float64), at), old)
        answers.append(made)
    return answers


def _zeroed(target: Target, rng: np.random.Generator) -> _Made:
    where = _drawn(target, rng)
    return where, _changed(target, where, lambda values, _: np.zeros_like(values))


def _other(target: Target, where: Slice, rng: np.random.Generator) -> Slice | None:
    """Another slice of the same axis and width."""
    width = where.stop - where.start
    most = min(each.shape[where.axis] for each in target.honest)
    starts = [at for at in range(0, most - width + 1, width) if at != where.start]
    if not starts:
        return None
    start = starts[int(rng.integers(len(starts)))]
    return Slice(where.axis, start, start + width)


def _swapped(target: Target, rng: np.random.Generator) -> _Made:
    where = _drawn(target, rng)
    other = _other(target, where, rng)
    if other is None or (other.start < where.stop and where.start < other.stop):
        return None
    answers = []
    for honest, fill in zip(target.honest, target.fill, strict=True):
        made = honest.copy()
        one, two = where.of(made), other.of(made)
        if one.shape == two.shape:
            both = ~where.of(fill) & ~other.of(fill)
            one[both], two[both] = two[both], one[both].copy()
        answers.append(made)
    return where, answers


def _rolled(target: Target, rng: np.random.Generator) -> _Made:
    where = _drawn(target, rng)
    step = int(rng.integers(1, 4))
    return where, _changed(target, where, lambda values, _: np.roll(values, step))


def _moved(target: Target, rng: np.random.Generator) -> _Made:
    where = _drawn(target, rng)
    if target.exact:
        return where, _changed(target, where, lambda values, _: values + 1)
    by = rng.choice((-1, 1)) * rng.uniform(1.05, 2) * target.bar * target.scale_at(where)
    return where, _changed(target, where, lambda values, _: values + by)


def _scaled(target: Target, rng: np.random.Generator) -> _Made:
    if target.exact:
        return None
    where = _drawn(target, rng)
    factor = 1 + rng.choice((-1, 1)) * rng.uniform(1.05, 3) * target.bar
    return where, _changed(target, where, lambda values, _: values * factor)


def _constant(target: Target, rng: np.random.Generator) -> _Made:
    where = _drawn(target, rng)
    pooled = np.concatenate(
        [
            where.of(each)[~where.of(fill)].ravel().astype(np.float64)
            for each, fill in zip(target.honest, target.fill, strict=True)
        ]
    )
    middle = np.median(pooled) if target.exact else pooled.mean()
    return where, _changed(target, where, lambda values, _: np.full_like(values, middle))


def _replaced(target: Target, rng: np.random.Generator) -> _Made:
    """By another slice's values, or by noise of the slice's own scale."""
    where = _drawn(target, rng)
    other = _other(target, where, rng)
    if other is not None and rng.random() < 0.5:
        there = other

        def copied(values: Array, at: int) -> Array:
            kept = ~where.of(target.fill[at])
            found = there.of(target.honest[at])
            if found.shape != kept.shape:
                return values
            taken = found[kept].astype(np.float64)
            return np.where(there.of(target.fill[at])[kept], values, taken)

        return where, _changed(target, where, copied)
    if target.exact:
        most = max(int(each.max(initial=1)) for each in target.honest) + 1
        return where, _changed(
            target, where, lambda values, _: rng.integers(0, most, values.shape).astype(float)
        )
    scale = target.scale_at(where)
    return where, _changed(
        target, where, lambda values, _: np.asarray(rng.normal(0, scale, values.shape))
    )


def _negated(target: Target, rng: np.random.Generator) -> _Made:
    if target.reference[0].dtype.kind != "f":
        return None
    where = _drawn(target, rng)
    return where, _changed(target, where, lambda values, _: -values)


def _rank_lost(target: Target, rng: np.random.Generator) -> _Made:
    """All rows along an axis equal their mean, or the whole has rank 1."""
    axis = int(rng.integers(target.honest[0].ndim))
    projects = not target.exact and rng.random() < 0.5
    answers = []
    for honest, fill in zip(target.honest, target.fill, strict=True):
        values = np.where(fill, 0.0, honest).astype(np.float64)
        if not values.size:
            answers.append(honest)
            continue
        if projects and values.size <= _MOST_SVD:
            rows = np.moveaxis(values, axis, -1)
            left, sizes, right = np.linalg.svd(
                rows.reshape(-1, rows.shape[-1]), full_matrices=False
            )
            flat = np.outer(left[:, 0] * sizes[0], right[0]).reshape(rows.shape)
            lost = np.moveaxis(flat, -1, axis)
        elif target.exact:
            lost = np.broadcast_to(np.take(values, [0], axis), values.shape)
        else:
            count = np.maximum((~fill).sum(axis=axis, keepdims=True), 1)
            lost = np.broadcast_to(values.sum(axis=axis, keepdims=True) / count, values.shape)
        answers.append(np.where(fill, honest, _like(lost, honest)).astype(honest.dtype))
    shown = Scales(target.reference, answers, target.fill)
    best: list[tuple[float, Slice]] = []
    for at, states in zip(target.wide, target.states, strict=False):
        _, scales, errors = shown.axes[at]
        shares = np.where(states == JUDGED, errors / np.maximum(scales, 1e-300), -1.0)
        index = int(shares.argmax())
        if shares[index] >= 0:
            best.append((float(shares[index]), Slice(at, index, index + 1)))
    for part in target.parts:
        if target.state(part) == JUDGED:
            _, (scale,), (error,) = shown.at(part)
            best.append((float(error / scale), part))
    return (max(best, key=lambda each: each[0])[1], answers) if best else None


def _part_zeroed(target: Target, rng: np.random.Generator) -> _Made:
    """A part that was joined, or half of an axis."""
    if target.joined:
        where = target.joined[int(rng.integers(len(target.joined)))]
    elif not target.wide:
        return None
    else:
        axis = target.wide[int(rng.integers(len(target.wide)))]
        size = len(target.scales.axes[axis][0])
        middle = size // 2
        where = Slice(axis, 0, middle) if rng.random() < 0.5 else Slice(axis, middle, size)
    if target.state(where) != JUDGED:
        return None
    return where, _changed(target, where, lambda values, _: np.zeros_like(values))


KINDS: Final[Mapping[str, _Kind]] = {
    "zeroed": _zeroed,
    "swapped": _swapped,
    "rolled": _rolled,
    "moved": _moved,
    "scaled": _scaled,
    "constant": _constant,
    "replaced": _replaced,
    "negated": _negated,
    "rank lost": _rank_lost,
    "part zeroed": _part_zeroed,
}
