"""Other values for a model's inputs, where those that suit its operators show nothing."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from aotc.graph.allowed_arrays import outside
from aotc.graph.values import Data
from aotc.sizes.inputs.fixtures import Hints, alternatives, generate
from aotc.spec.payload import Value

# How many values are tried for what is to be shown, each in one run.
MAX_TRIED: Final = 64
_FACTORS: Final = (0.1, 10.0, 100.0, 0.01, 1000.0, 1e-4, 1e-6)
_MAX_TRUTHS: Final = 4
_MAX_NUMBERS: Final = 16


class Searched(NamedTuple):
    """Values for all inputs, and a description of them."""

    what: str
    inputs: dict[str, Data]


def searched_values(
    values: Sequence[Value],
    base: Mapping[str, Data],
    sizes: Mapping[str, int],
    hints: Hints,
    seed: int,
    names: Collection[str],
    numbers: Sequence[float],
) -> Iterator[Searched]:
    """Inputs like `base`, at `sizes`, with other values in the inputs `names`; likeliest first.

    In order: two other draws; floats by sign, in the ranges of images, by scale, and all 0; all
    truth values; other integers; floats at and around `numbers`, which the model compares with.
    At most `MAX_TRIED`, the same for equal arguments, and none that an input excludes.
    """
    asked = [value for value in values if value.name in names and value.kind == "tensor"]
    found = itertools.chain(
        _drawn(values, base, sizes, hints, seed, names),
        _scaled(_of_kind(asked, base, "f"), base, seed),
        _truths(_of_kind(asked, base, "b"), base),
        _integers(_of_kind(asked, base, "iu"), base, numbers),
        _around(_of_kind(asked, base, "f"), base, seed, numbers),
        _other(values, sizes, hints, seed, names, base),
    )
    stated = [value for value in values if value.allowed is not None]
    possible = (each for each in found if not stated or _are_allowed(each.inputs, stated, sizes))
    return itertools.islice(possible, MAX_TRIED)


def _are_allowed(
    inputs: Mapping[str, Data], stated: Sequence[Value], sizes: Mapping[str, int]
) -> bool:
    """Whether inputs have no value outside of those that the profile states."""
    return not any(
        outside(inputs[value.name], value.allowed, sizes) for value in stated if value.allowed
    )


def _of_kind(
    values: Sequence[Value], base: Mapping[str, Data], kinds: str
) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of `base` of these kinds; floats of other libraries count as floats."""
    found = {}
    for value in values:
        array = base.get(value.name)
        if not isinstance(array, np.ndarray) or not array.size:
            continue
        kind = "f" if "float" in value.dtype else array.dtype.kind
        if kind in kinds:
            found[value.name] = array
    return found


def _drawn(
    values: Sequence[Value],
    base: Mapping[str, Data],
    sizes: Mapping[str, int],
    hints: Hints,
    seed: int,
    names: Collection[str],
) -> Iterator[Searched]:
    for number in (1, 2):
        drawn = generate(values, sizes, hints, (seed + number) % 2**32)
        changed = {name: value for name, value in drawn.items() if name in names}
        yield Searched("other values of the same kind", {**base, **changed})


def _scaled(
    floats: Mapping[str, np.ndarray[Any, Any]], base: Mapping[str, Data], seed: int
) -> Iterator[Searched]:
    if not floats:
        return
    whose = ", ".join(floats)

    def changed(what: str, change: Any) -> Searched:
        with np.errstate(over="ignore"):
            made = {
                name: np.asarray(change(array.astype(np.float32))).astype(array.dtype)
                for name, array in floats.items()
            }
        return Searched(f"{whose}: {what}", {**base, **made})

    rng = np.random.default_rng(seed)
    yield changed("positive values", np.abs)
    yield changed("negative values", lambda array: -np.abs(array))
    yield changed("values from 0 to 1", lambda array: rng.random(array.shape))
    for factor in _FACTORS:
        yield changed(f"values times {factor:g}", lambda array, by=factor: array * by)
        if factor == _FACTORS[1]:
            yield changed("values from 0 to 255", lambda array: rng.integers(0, 256, array.shape))
    yield changed("0 throughout", np.zeros_like)
    # One input alone, if there are others: what is the largest often decides.
    for name, array in floats.items() if len(floats) > 1 else ():
        made = (array.astype(np.float32) * _FACTORS[1]).astype(array.dtype)
        yield Searched(f"{name}: values times {_FACTORS[1]:g}", {**base, name: made})
        made = (-np.abs(array.astype(np.float32))).astype(array.dtype)
        yield Searched(f"{name}: negative values", {**base, name: made})


def _truths(
    truths: Mapping[str, np.ndarray[Any, Any]], base: Mapping[str, Data]
) -> Iterator[Searched]:
    names = list(truths)[:_MAX_TRUTHS]
    for chosen in itertools.product((True, False), repeat=len(names)) if names else ():
        made = {
            name: np.full_like(truths[name], truth)
            for name, truth in zip(names, chosen, strict=True)
        }
        said = ", ".join(
            f"{name}: {str(bool(array.flat[0])).lower()}" for name, array in made.items()
        )
        yield Searched(said, {**base, **made})


def _integers(
    integers: Mapping[str, np.ndarray[Any, Any]],
    base: Mapping[str, Data],
    numbers: Sequence[float],
) -> Iterator[Searched]:
    whole = [int(number) for number in numbers if float(number).is_integer()]
    near = [number + step for number in whole for step in (0, 1, -1)]
    for name, array in integers.items():
        least, most = int(np.iinfo(array.dtype).min), int(np.iinfo(array.dtype).max)
        for number in list(dict.fromkeys((0, 1, 2, *near, 3, -1)))[:_MAX_NUMBERS]:
            if least <= number <= most:
                made = np.full_like(array, number)
                yield Searched(f"{name}: {number}", {**base, name: made})


def _around(
    floats: Mapping[str, np.ndarray[Any, Any]],
    base: Mapping[str, Data],
    seed: int,
    numbers: Sequence[float],
) -> Iterator[Searched]:
    rng = np.random.default_rng(seed)
    for number, name in itertools.product(numbers, floats):
        array = floats[name].astype(np.float64)
        step = max(1.0, abs(number) / 8)
        with np.errstate(over="ignore", invalid="ignore"):
            for sign, side in ((1, "above"), (-1, "below")):
                one = array.copy()
                one.reshape(-1)[0] = number + sign * step
                made = one.astype(floats[name].dtype)
                yield Searched(f"{name}: one value {side} {number:g}", {**base, name: made})
            made = np.full_like(floats[name], number)
            yield Searched(f"{name}: {number:g} throughout", {**base, name: made})
            near = number + step * rng.normal(size=array.shape)
            made = near.astype(floats[name].dtype)
            yield Searched(f"{name}: values around {number:g}", {**base, name: made})
            for sign, side in ((4, "above"), (-4, "below")):
                made = (sign * abs(number) * (np.abs(array) + 1)).astype(floats[name].dtype)
                where = number if sign > 0 else -abs(number)
                yield Searched(f"{name}: values {side} {where:g}", {**base, name: made})


def _other(
    values: Sequence[Value],
    sizes: Mapping[str, int],
    hints: Hints,
    seed: int,
    names: Collection[str],
    base: Mapping[str, Data],
) -> Iterator[Searched]:
    for alternative in alternatives(values, hints):
        drawn = generate(values, sizes, alternative.hints, seed)
        changed = {name: value for name, value in drawn.items() if name in names}
        yield Searched(alternative.what, {**base, **changed})
