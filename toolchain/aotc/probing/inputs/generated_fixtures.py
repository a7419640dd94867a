"""Inputs generated from a seed, with values that make sense for the operators that read them.

`generate` draws values according to the hints of `input_hints`.  The `kind` of a hint is one of:

- `index`: integers from `low` (default 0) up to but excluding `high`, some of them taken from
  `among`; unique along the axis `distinct`;
- `columns`: indices whose last axis holds one below each of `highs`; `distinct`: all rows differ;
- `vector`: the elements `values`, in order; any further elements are 1;
- `full`: `value` everywhere;
- `split`: parts of `total`, as equal as possible;
- `choice`: any of `values`;
- `uniform`: floats from `low` up to but excluding `high`;
- `boxes`: corners in order along the last axis, after a 0 if that axis has five elements;
- `ones`, `small`, `positive`; `divisor`, which is never 0; `zero_point`, which is always 0.

Numbers may be extents, which depend on the sizes of the inputs.  With `list`, the value of an
optional is a list of such tensors.  `or` holds alternative hints (see `rejected_values`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.engine.values import NARROW_BITS, numpy_dtype
from aotc.probing.inputs.extents import extent_value
from aotc.probing.inputs.value_rules import SEQUENCE_LENGTH

Hints = Mapping[str, Mapping[str, Json]]
Shapes = Mapping[str, Sequence[int]]
_TEXTS: Final = ("alpha", "beta", "gamma", "1", "2.5", "the quick brown fox")
_DEFAULT_SIZE: Final = 2
# Up to this many positions indices are drawn without repetition.
_MAX_POSITIONS: Final = 1 << 20
# Share of the indices that are taken from values that the model compares them with.
_COMPARED_SHARE: Final = 0.125


def shape_of(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input at `sizes`.

    A dim that `sizes` lacks has size 2, and an input of unknown rank the shape [2].
    """
    if value.shape is None:
        return (sizes.get(f"{value.name}.0", _DEFAULT_SIZE),)
    return tuple(d if isinstance(d, int) else sizes.get(d, _DEFAULT_SIZE) for d in value.shape)


def generate(
    values: Iterable[Value], sizes: Mapping[str, int], hints: Hints, seed: int
) -> dict[str, Any]:
    """Generated inputs by name: arrays, lists of arrays for sequences, dicts for maps.

    Equal arguments give equal values (PCG64 seeded with `seed` and the input's position).
    """
    result: dict[str, Any] = {}
    values = tuple(values)
    shapes = {value.name: shape_of(value, sizes) for value in values}
    for position, value in enumerate(values):
        rng = np.random.default_rng((seed, position))
        hint = hints.get(value.name, {})
        shape = shapes[value.name]
        if value.kind == "sequence" or hint.get("list"):
            result[value.name] = [
                _array(value.dtype, shape, hint, rng, shapes) for _ in range(SEQUENCE_LENGTH)
            ]
        elif value.kind == "map":
            keys = _TEXTS[:3] if value.dtype == "string" else (0, 1, 2)
            result[value.name] = {key: float(rng.normal()) for key in keys}
        else:
            result[value.name] = _array(value.dtype, shape, hint, rng, shapes)
    return result


def with_one_sign(
    inputs: Mapping[str, Any], values: Iterable[Value], hints: Hints
) -> dict[str, dict[str, Any]]:
    """Copies of `inputs` with all floats negative, and with all positive.

    Zeros from padding stay unnoticed under a maximum over values of both signs.  Empty if no float
    input is free of hints.
    """
    free = [
        value.name
        for value in values
        if value.kind == "tensor"
        and "float" in value.dtype
        and not hints.get(value.name)
        and value.name in inputs
    ]
    if not free:
        return {}
    result: dict[str, dict[str, Any]] = {}
    for side, sign in (("negative", -1), ("positive", 1)):
        changed = {}
        for name in free:
            array = inputs[name]
            changed[name] = (sign * (np.abs(array.astype(np.float32)) + 1)).astype(array.dtype)
        result[side] = {**inputs, **changed}
    return result


def _array(
    dtype: str,
    shape: tuple[int, ...],
    hint: Mapping[str, Json],
    rng: np.random.Generator,
    shapes: Shapes,
) -> Any:
    kind = hint.get("kind", "")
    if dtype == "string":
        words = [str(v) for v in hint["values"]] if kind == "choice" else list(_TEXTS)
        return np.array(rng.choice(words, size=shape), dtype=object).reshape(shape)
    target = numpy_dtype(dtype)
    if kind == "choice":
        return np.asarray(rng.choice(np.array(hint["values"]), size=shape)).astype(target)
    stated = _fixed_array(kind, shape, hint, shapes)
    if stated is not None:
        return stated.astype(target)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in ("index", "columns"):
        return _indices(shape, hint, rng, shapes, target)
    if dtype in NARROW_BITS:
        count = 1 << NARROW_BITS[dtype]
        low = -count // 2 if dtype.startswith("int") else 0
        return rng.integers(low, low + count, shape, dtype=np.int8).astype(target)
    if np.issubdtype(target, np.integer):
        return _integers(kind, shape, rng, target)
    if kind == "positive":
        return rng.uniform(0.1, 2.0, shape).astype(target)
    if kind == "uniform":
        return rng.uniform(hint["low"], hint["high"], shape).astype(target)
    if kind == "boxes":
        return _boxes(shape, rng).astype(target)
    if dtype in ("complex64", "complex128"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(target)
    return np.asarray(rng.normal(size=shape), dtype=np.float32).astype(target)


def _fixed_array(
    kind: str, shape: tuple[int, ...], hint: Mapping[str, Json], shapes: Shapes
) -> Any:
    """The array if the hint leaves nothing to draw, else None."""
    if kind == "ones":
        return np.ones(shape, np.int8)
    if kind == "zero_point":
        return np.zeros(shape, np.int8)
    if kind == "full":
        return np.full(shape, _number(hint["value"], shapes))
    if kind == "vector":
        array = np.ones(shape, np.float64)
        known = [_number(value, shapes) for value in hint["values"]][: array.size]
        array.flat[: len(known)] = known
        return array
    if kind == "split":
        count = max(1, int(np.prod(shape, dtype=np.int64)))
        amount = int(_number(hint["total"], shapes))
        parts = [amount // count] * count
        parts[-1] += amount % count
        return np.array(parts).reshape(shape) if np.prod(shape, dtype=np.int64) else np.ones(shape)
    return None


def _number(extent: Json, shapes: Shapes) -> float:
    """The value of an extent or a plain number; 1 if the inputs lack the axis that it needs."""
    if isinstance(extent, float):
        return extent
    value = extent_value(extent, shapes)
    return 1 if value is None else value


def _integers(
    kind: str, shape: tuple[int, ...], rng: np.random.Generator, target: np.dtype[Any]
) -> Any:
    low, high = 0, 8
    if kind == "small":
        low, high = 1, 3
    elif kind in ("divisor", "positive", "uniform"):
        low = 1
    elif target.itemsize == 1:
        info = np.iinfo(target)
        low, high = int(info.min), int(info.max) + 1
    return rng.integers(low, high, shape, dtype=np.int64).astype(target)


def _indices(
    shape: tuple[int, ...],
    hint: Mapping[str, Json],
    rng: np.random.Generator,
    shapes: Shapes,
    target: np.dtype[Any],
) -> Any:
    if hint["kind"] == "columns":
        highs = [max(1, int(_number(high, shapes))) for high in hint["highs"]]
        count = int(np.prod(shape, dtype=np.int64)) // max(1, len(highs))
        if count * len(highs) != np.prod(shape, dtype=np.int64):
            return np.zeros(shape, target)
        positions = int(np.prod(highs, dtype=np.int64))
        if hint.get("distinct") and count <= positions <= _MAX_POSITIONS:
            flat = rng.permutation(positions)[:count]
            columns = np.stack(np.unravel_index(flat, highs), -1)
        else:
            columns = np.stack([rng.integers(0, high, count) for high in highs], -1)
        return columns.reshape(shape).astype(target)
    low = int(hint.get("low", 0))
    high = max(low + 1, int(_number(hint["high"], shapes)))
    if np.issubdtype(target, np.integer):
        high = max(low + 1, min(high, int(np.iinfo(target).max) + 1))
    axis = hint.get("distinct")
    if axis is not None and -len(shape) <= axis < len(shape):
        return _distinct(shape, axis, low, high, rng).astype(target)
    array = rng.integers(low, high, shape, dtype=np.int64)
    among = [value for value in hint.get("among", ()) if low <= value < high]
    if among:
        array = np.where(rng.random(shape) < _COMPARED_SHARE, rng.choice(among, shape), array)
    return np.asarray(array).astype(target)


def _distinct(
    shape: tuple[int, ...], axis: int, low: int, high: int, rng: np.random.Generator
) -> Any:
    """Indices that are unique along `axis`, if there are enough of them."""
    count = shape[axis]
    if not count <= high - low <= _MAX_POSITIONS:
        return rng.integers(low, high, shape, dtype=np.int64)
    rest = [size for at, size in enumerate(shape) if at != axis % len(shape)]
    lines = int(np.prod(rest, dtype=np.int64))
    drawn = [low + rng.permutation(high - low)[:count] for _ in range(lines)]
    array = np.array(drawn, np.int64).reshape(*rest, count)
    return np.moveaxis(array, -1, axis)


def _boxes(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    boxes = rng.uniform(0.0, 4.0, shape)
    if shape and shape[-1] in (4, 5):
        boxes[..., -2:] += 4.0
        boxes[..., :-4] = 0.0
    return boxes
