"""How narrowly the original model decides its outputs of whole numbers, by a run that shows it.

A copy of the model also answers with the floats that decide them.  These are moved by what the
tolerance allows, and what follows from them is computed again: where that changes the output, or
could, either value is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from aotc.base.errors import AotcError
from aotc.graph.decisions import Choice, Decision, Decisions
from aotc.graph.model import read_model
from aotc.graph.values import Data, dtype_name, nbytes
from aotc.graph.view import constant_tensors
from aotc.session.decisions import CLEARLY, NARROWLY, TIED, Array, Judge
from aotc.session.inference import open_original, with_outputs
from aotc.session.sessions import create_session, onnx_code, run
from aotc.spec.precision import DecidedOutput, Tolerance
from aotc.spec.providers import CPU
from aotc.spec.variant import SessionSpec

# Inputs of one run of the original.
Inputs = Callable[[], Mapping[str, Data]]
_MODEL: Final = "decisions.onnx"
# Values of earlier inputs are kept up to so many bytes.
_KEPT_BYTES: Final = 256 << 20
# So many of the next best count, where an index is not an answer itself.
_RANKS: Final = 16
# A value that is so many times as large as all others, and is there twice, is a fill.
_FILL: Final = 1000.0
_HUGE: Final = 1e30
_MAX_FLOATS: Final = 8
# Deciding values are moved by these parts of the tolerance: what is between two limits must not be
# moved across both.
_PARTS: Final = (1.0, 0.25, 0.05)


class OriginalMargins:
    """The margins of one model's outputs; it is opened and run where they are asked for."""

    def __init__(self, model: Path, weights: Path, stated: Mapping[str, DecidedOutput]) -> None:
        """`weights` is the folder of the external data.  A copy is written where jobs run."""
        self._path, self._weights = model, weights
        self._stated = stated
        self._decisions: Decisions | None = None
        self._session: Any = None
        self._tails: dict[str, Any] = {}
        self._kept: dict[str, dict[str, Array]] = {}

    def judge(self, name: str, key: str, inputs: Inputs, tolerance: Tolerance) -> Judge | None:
        """The judge of one output, for `inputs` that `key` names; None if no floats decide it."""
        stated = self._stated.get(name)
        if stated is None:
            return None
        return Judge(stated, _Margins(self, name, key, inputs, tolerance))

    def of(self, name: str, key: str, inputs: Inputs) -> tuple[Decision, Any] | None:
        """The decision and its values; None if it cannot be read, or the model does not run so."""
        try:
            decision = self._opened().by_output.get(name)
            if decision is None or not (decision.floats or decision.choices):
                return None
            return decision, self._values(key, inputs)
        except AotcError:
            # Without memory for it, as an example: what is known is how many values differ.
            return None

    def tail(self, name: str, decision: Decision, values: Mapping[str, Array]) -> Any:
        """A session that makes the target of a decision."""
        if name not in self._tails:
            kinds = {each: _kind(values[each]) for each in decision.read}
            tail = self._opened().tail(decision, kinds)
            self._tails[name] = create_session(
                tail.SerializeToString(),
                SessionSpec(optimization="disable"),
                providers=[CPU],
                weights_folder=self._weights,
                threads=1,
            )
        return self._tails[name]

    def equalities(self, decision: Decision) -> tuple[list[tuple[str, str]], dict[str, Array]]:
        """The operands of comparisons for equality, and those among them that are constant."""
        pairs = self._opened().equalities(decision)
        known = constant_tensors(self._opened().model.graph)
        names = {name for pair in pairs for name in pair} & known.keys()
        folder = str(self._weights)
        return pairs, {name: numpy_helper.to_array(known[name], folder) for name in names}

    def _opened(self) -> Decisions:
        if self._decisions is None:
            self._decisions = Decisions(read_model(self._path), self._stated)
        return self._decisions

    def _values(self, key: str, read_inputs: Inputs) -> dict[str, Array]:
        if key in self._kept:
            return self._kept[key]
        inputs = read_inputs()
        decisions = self._opened()
        read = [name for each in decisions.by_output.values() for name in each.read]
        names = [name for name in dict.fromkeys(read) if name not in inputs]
        if self._session is None:
            path = Path(_MODEL)
            path.write_bytes(with_outputs(decisions.model, names).SerializeToString())
            self._session = open_original(path, self._weights)[1]
        found = dict(zip(names, run(self._session, inputs, names), strict=True))
        found |= {name: np.asarray(inputs[name]) for name in read if name in inputs}
        self._kept[key] = found
        while len(self._kept) > 1 and sum(map(_bytes, self._kept.values())) > _KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        return found


def _bytes(values: Mapping[str, Data]) -> int:
    return sum(map(nbytes, values.values()))


def _kind(value: Array) -> int:
    name = dtype_name(value.dtype)
    code = onnx_code(name)
    return int(onnx.helper.np_dtype_to_tensor_dtype(value.dtype)) if code is None else code


class _Margins:
    """The margins of one output for one set of inputs."""

    def __init__(
        self,
        original: OriginalMargins,
        name: str,
        key: str,
        inputs: Inputs,
        tolerance: Tolerance,
    ) -> None:
        self._original, self._name = original, name
        self._key, self._inputs = key, inputs
        self._tolerance = tolerance

    def values(self, actual: Array) -> Array | None:
        """See `Margins`."""
        known = self._original.of(self._name, self._key, self._inputs)
        if known is None:
            return None
        decision, values = known
        if decision.plain:
            choice = decision.choices[0]
            return _chosen_well(choice, values, actual, self._bound(values[choice.scores]))
        outcomes = self._outcomes(decision, values, bounded=not decision.choices)
        try:
            first = next(outcomes)
            found = np.full(actual.shape, CLEARLY)
            low = high = first
            for outcome in outcomes:
                if outcome.shape != actual.shape:
                    return None
                found[outcome == actual] = NARROWLY
                low, high = np.minimum(low, outcome), np.maximum(high, outcome)
        except AotcError:
            return None
        if not decision.choices:
            found[(low <= actual) & (actual <= high)] = NARROWLY
        # Of what follows from the reference itself, which float64 may not.
        found[first == actual] = TIED
        return found

    def places(self, places: Array) -> Array | None:
        """See `Margins`."""
        known = self._original.of(self._name, self._key, self._inputs)
        if known is None:
            return None
        decision, values = known
        try:
            outcomes = list(self._outcomes(decision, values, bounded=True))
        except AotcError:
            return None
        first = outcomes[0]
        inside = places.shape[1] == first.ndim and (places < first.shape).all()
        if not inside or any(each.shape != first.shape for each in outcomes):
            return None
        open_ = np.zeros(first.shape, bool)
        for each in outcomes:
            open_ |= each != first
        return np.asarray(open_[tuple(places.T)])

    def _bound(self, values: Array) -> float:
        return self._tolerance.atol + self._tolerance.rtol * scale_of(values)

    def _outcomes(
        self, decision: Decision, values: Mapping[str, Array], *, bounded: bool
    ) -> Iterator[Array]:
        """The target as it is, then as it is with other values that are as right."""
        given = {name: values[name] for name in (*decision.floats, *decision.given)}
        given |= {each.indices: values[each.indices] for each in decision.choices}
        session = self._original.tail(self._name, decision, values) if decision.nodes else None

        def target(changed: Mapping[str, Array]) -> Array:
            feeds = {**given, **changed}
            if session is None:
                return feeds[decision.target]
            return np.asarray(run(session, feeds, [decision.target])[0])

        yield target({})
        bounds = {name: self._bound(values[name]) for name in decision.floats}
        moved: list[dict[str, Array]] = [{}]
        for part, signs in itertools.product(_PARTS, _signs(len(decision.floats))):
            changed = {
                name: _moved(values[name], part * sign * bounds[name])
                for name, sign in zip(decision.floats, signs, strict=True)
            }
            yield target(changed)
            if part == 1:
                moved.append(changed)
        pairs, constants = self._original.equalities(decision)
        for pair in pairs:
            for one, other in itertools.permutations(pair):
                second = values.get(other, constants.get(other))
                if one in bounds and second is not None:
                    bound = bounds[one] + bounds.get(other, 0.0)
                    if (met := _met(values[one], second, bound)) is not None:
                        yield target({one: met})
        for choice in decision.choices:
            scores = values[choice.scores]
            for indices in _alternatives(choice, values, self._bound(scores)):
                for changed in moved:
                    yield target({**changed, choice.indices: indices})


def scale_of(values: Array) -> float:
    """The largest magnitude of finite values, without a fill such as -1e9 in masked places."""
    sizes = np.abs(values.astype(np.float64)).reshape(-1)
    sizes = sizes[np.isfinite(sizes) & (sizes < _HUGE)]
    while sizes.size:
        largest = float(sizes.max())
        rest = sizes[sizes < largest]
        is_fill = sizes.size - rest.size > 1 and rest.size and largest > _FILL * float(rest.max())
        if not is_fill or not float(rest.max()):
            return largest
        sizes = rest
    return 0.0


def _signs(count: int) -> Iterator[Sequence[int]]:
    """Ways to move `count` values: all alike, and each against the others."""
    if not count:
        return
    yield [1] * count
    yield [-1] * count
    if count > 1:
        for at in range(min(count, _MAX_FLOATS)):
            for sign in (1, -1):
                yield [sign if index == at else -sign for index in range(count)]


def _moved(values: Array, by: float) -> Array:
    """`values` moved, but not beyond a largest or smallest that several have: they end there."""
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        moved = wide + by
    for limit, clipped in ((finite.min(), np.maximum), (finite.max(), np.minimum)):
        if np.count_nonzero(finite == limit) > 1:
            moved = clipped(moved, limit)
    return np.where(np.isfinite(wide), moved, wide).astype(values.dtype)


def _met(one: Array, other: Array, bound: float) -> Array | None:
    """`one` where it is not near `other`, else `other`; None if shapes do not fit."""
    try:
        wide = np.broadcast_to(other, one.shape)
    except ValueError:
        return None
    with np.errstate(invalid="ignore"):
        near = np.abs(one.astype(np.float64) - wide.astype(np.float64)) <= bound
    return np.where(near, wide, one)


def _scores(choice: Choice, values: Mapping[str, Array]) -> Array:
    """The scores with the axis of the choice last; more is better."""
    scores = np.moveaxis(values[choice.scores].astype(np.float64), choice.axis, -1)
    return scores if choice.largest else -scores


def _last(choice: Choice, indices: Array) -> Array:
    """Indices with the axis of the choice last."""
    if not choice.keeps_axis:
        return indices[..., np.newaxis]
    return np.moveaxis(indices, choice.axis, -1)


def _chosen_well(
    choice: Choice, values: Mapping[str, Array], actual: Array, bound: float
) -> Array | None:
    """How each index of `actual` was decided against, by its score and that of the reference's."""
    shape = values[choice.indices].shape
    if actual.size != values[choice.indices].size:
        return None
    scores = _scores(choice, values)
    expected = _last(choice, values[choice.indices])
    found = _last(choice, actual.reshape(shape).astype(np.int64))
    inside = (found >= 0) & (found < scores.shape[-1])
    one = np.take_along_axis(scores, expected.astype(np.int64), axis=-1)
    other = np.take_along_axis(scores, np.where(inside, found, 0), axis=-1)
    with np.errstate(invalid="ignore"):
        how = np.where(np.abs(one - other) <= 2 * bound, NARROWLY, CLEARLY)
    how[one == other] = TIED
    how[~inside] = CLEARLY
    if choice.ranked:
        # No index is among the best twice.
        ordered = np.sort(found, axis=-1)
        how[(ordered[..., 1:] == ordered[..., :-1]).any(axis=-1)] = CLEARLY
    how = how[..., 0] if not choice.keeps_axis else np.moveaxis(how, -1, choice.axis)
    return np.asarray(how.reshape(actual.shape))


def _alternatives(choice: Choice, values: Mapping[str, Array], bound: float) -> Iterator[Array]:
    """Other indices whose scores are as good: the next best, or ranks that are near."""
    scores = _scores(choice, values)
    indices = values[choice.indices]
    base = _last(choice, indices).astype(np.int64)
    count = base.shape[-1]
    wide = min(scores.shape[-1], count + _RANKS)
    # NaN would be first: what is next to it is not said.
    best = np.argsort(np.where(np.isnan(scores), -np.inf, -scores), axis=-1, kind="stable")
    best = best[..., :wide]
    own = np.take_along_axis(scores, base, axis=-1)
    shifts = range(1, _RANKS + 1) if not choice.ranked else range(-_RANKS, _RANKS + 1)
    for shift in shifts:
        at = np.arange(count) + shift
        fits = (at >= 0) & (at < wide)
        if not shift or not fits.any():
            continue
        other = best[..., np.where(fits, at, 0)]
        value = np.take_along_axis(scores, other, axis=-1)
        with np.errstate(invalid="ignore"):
            near = fits & ((np.abs(own - value) <= 2 * bound) | (own == value))
        if not near.any():
            continue
        chosen = np.where(near, other, base)
        shaped = chosen[..., 0] if not choice.keeps_axis else np.moveaxis(chosen, -1, choice.axis)
        yield shaped.astype(indices.dtype)
