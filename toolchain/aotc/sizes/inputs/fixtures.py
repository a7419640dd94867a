"""Fixtures: which prove a domain, generated ones, alternatives, and those of the user."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.files.names import data_sources
from aotc.base.files.reading import read_at_most
from aotc.graph import values
from aotc.graph.allowed_arrays import MAX_ENDS, draw, ends_of, filled
from aotc.graph.values import NARROW_BITS, PickledObjects, describe, numpy_dtype, open_npz
from aotc.session.parity import same_bits
from aotc.sizes.inputs.flow import extent_value
from aotc.sizes.inputs.value_rules import SEQUENCE_LENGTH
from aotc.sizes.shown import digest_of
from aotc.spec.allowed_values import value_text
from aotc.spec.buckets import bucket_combinations
from aotc.spec.codec import Json
from aotc.spec.payload import Value
from aotc.spec.precision import ParitySpec
from aotc.spec.shapes import EMPTY, FURTHER, Dim, DimRange, Domain

# Sizes that are drawn may be known already; then they are drawn again, up to this often.
_MAX_DRAWS = 16
# By input.
Hints = Mapping[str, Mapping[str, Json]]
Shapes = Mapping[str, Sequence[int]]
_TEXTS: Final = ("alpha", "beta", "gamma", "1", "2.5", "the quick brown fox")
# Up to this many positions indices are drawn without repetition.
_MAX_POSITIONS: Final = 1 << 20
# Share of the indices that are taken from values that the model compares them with.
_COMPARED_SHARE: Final = 0.125
# Fixtures whose values were searched for begin so; they have sizes of another one.
SEARCHED: Final = "shown"
# Those in which an input is a stated value throughout have the optimal sizes.
STATED: Final = "stated"
# Those at sizes that are padded least begin so; they are not tried before.
LESS: Final = "less"
# How many alternatives are tried, each at all retried sizes.
MAX_ALTERNATIVES: Final = 24
# How many sizes that failed with the first values are retried.
MAX_RETRIED_SIZES: Final = 2
# Integers that are valid most often: nothing or the first, one, a pair.
_PLAIN_NUMBERS: Final = (0, 1, 2)
_NUMERIC_TEXTS: Final = ("1", "7", "12")


class FixtureInputs:
    """Values by input name, and the sizes of the free dims that they imply."""

    def __init__(self, name: str, inputs: dict[str, Any], sizes: dict[str, int]) -> None:
        self.name = name
        self.inputs = inputs
        self.sizes = sizes

    def is_like(self, other: FixtureInputs) -> bool:
        """Whether sizes and values are the same."""
        return (
            self.sizes == other.sizes
            and self.inputs.keys() == other.inputs.keys()
            and all(same_bits(value, other.inputs[name]) for name, value in self.inputs.items())
        )

    @classmethod
    def read(cls, item: Json, declared: Sequence[Value]) -> FixtureInputs:
        """Load a user's fixture from its value files.

        The sizes follow from the `declared` shapes.  Raises AOTC-I024 if a value has another rank
        or another fixed size than declared.
        """
        inputs = {name: values.load(Path(path)) for name, path in item["inputs"].items()}
        sizes: dict[str, int] = {}
        for value in declared:
            array = inputs.get(value.name)
            shape = getattr(array, "shape", None)
            if shape is None or value.shape is None:
                continue
            same_rank = len(shape) == len(value.shape)
            if not same_rank or any(
                isinstance(d, int) and d != s for d, s in zip(value.shape, shape, strict=True)
            ):
                raise AotcError(
                    "AOTC-I024",
                    f"the fixture's {'size' if same_rank else 'rank'} differs from the input's",
                    where=f"{item['name']}: {value.name}",
                    expected=str(value.shape),
                    found=str(tuple(shape)),
                )
            sizes |= {d: s for d, s in zip(value.shape, shape, strict=True) if isinstance(d, str)}
        return cls(item["name"], inputs, sizes)


def refuse_out_of_range(given: Sequence[FixtureInputs], stated: Mapping[str, DimRange]) -> None:
    """Raise AOTC-I024 if a user's fixture has a size outside the range that is stated for it."""
    for item in given:
        for name, spec in stated.items():
            if name in item.sizes and not spec.allows(item.sizes[name]):
                raise AotcError(
                    "AOTC-I024",
                    "the fixture's size is outside the stated range",
                    where=f"{item.name}: {name}",
                    expected=f"{spec.min}..{spec.max}" if spec.min < spec.max else str(spec.min),
                    found=str(item.sizes[name]),
                )


def plan_fixtures(
    domain: Domain,
    parity: ParitySpec,
    inputs_at: Callable[[Mapping[str, int]], dict[str, Any]],
    given: Sequence[FixtureInputs],
) -> list[FixtureInputs]:
    """The user's fixtures, the corners of the domain, and random sizes between the corners.

    `inputs_at` generates the inputs for given sizes.
    """
    plan = [FixtureInputs(f"user{i}", item.inputs, item.sizes) for i, item in enumerate(given)]
    if given and not domain.dims:
        return plan
    seen: list[dict[str, int]] = []
    for name, sizes in _points(domain, parity):
        if sizes not in seen:
            seen.append(sizes)
            plan.append(FixtureInputs(name, inputs_at(sizes), sizes))
    return plan


def _points(domain: Domain, parity: ParitySpec) -> Iterator[tuple[str, dict[str, int]]]:
    """Names and sizes: the corners, those without elements, all buckets, then random sizes.

    The smallest corner has elements, if any is in the range.
    """
    known = [domain.corner("opt"), domain.corner("least"), domain.corner("max")]
    yield from zip(("opt", "min", "max"), known, strict=True)
    for index, empty in enumerate(domain.empty_corners()):
        known.append(empty)
        yield f"{EMPTY}{index}", empty
    for index, further in enumerate(domain.further()):
        known.append(further.corner("max"))
        yield f"{FURTHER}{index}", known[-1]
    optimal = {name: dim.opt for name, dim in domain.dims.items()}
    for index, buckets in enumerate(bucket_combinations(domain)):
        known.append(domain.complete({**optimal, **buckets}))
        yield f"bucket{index}", known[-1]
    rng = np.random.default_rng(parity.seed)
    for index in range(
        parity.random_shapes if any(d.min < d.max for d in domain.dims.values()) else 0
    ):
        for _ in range(_MAX_DRAWS):
            sizes = domain.complete({name: _draw(dim, rng) for name, dim in domain.dims.items()})
            if sizes not in known:
                known.append(sizes)
                yield f"random{index}", sizes
                break


def lower_edge(domain: Domain, buckets: Mapping[str, int]) -> dict[str, int]:
    """The smallest sizes that are padded to `buckets`, for each dim that can be padded.

    A dim without buckets is padded to its grid; for it, this is its smallest size that is padded.
    """
    edge = {}
    for name, dim in domain.dims.items():
        if dim.pad_from is None:
            continue
        minimum = max(dim.pad_from, 1)
        full = buckets.get(name)
        if full is not None:
            below = [size for size in dim.buckets if size < full]
            minimum = max(minimum, below[-1] + 1 if below else 1)
        elif dim.buckets:
            continue
        else:
            # The smallest size may itself be on the grid.
            minimum = next(
                (s for s in (minimum, minimum + 1) if dim.padded_size(s) not in (s, None)), minimum
            )
            full = dim.padded_size(minimum)
        if full is not None and minimum < full:
            edge[name] = minimum
    return edge


def padded_points(domain: Domain, buckets: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes that are padded to `buckets`, the most telling first.

    First the lower edge, where padding is largest; then the middle, one less than the bucket, and
    multiples of 32 down to 2, for models that accept no other sizes.
    """
    edge = lower_edge(domain, buckets)
    if not edge:
        return []
    optimal = {name: dim.opt for name, dim in domain.dims.items()}
    full = {name: domain.dims[name].padded_size(size) or size for name, size in edge.items()}
    positions: list[Callable[[int, int], int]] = [
        lambda low, high: low,
        lambda low, high: (low + high) // 2,
        lambda low, high: high - 1,
        *((lambda low, high, grid=grid: (high - 1) // grid * grid) for grid in (32, 16, 8, 4, 2)),
    ]
    points: list[dict[str, int]] = []
    for position in positions:
        sizes = {name: position(low, full[name]) for name, low in edge.items()}
        if all(edge[name] <= size < full[name] for name, size in sizes.items()):
            point = domain.complete({**optimal, **buckets, **sizes})
            if point not in points:
                points.append(point)
    return points


def _draw(dim: Dim, rng: np.random.Generator) -> int:
    """A size of the dim, drawn log-uniformly, so that small sizes are tried as well."""
    if dim.buckets and "route" not in dim.outside:
        return int(rng.choice(dim.buckets))
    if dim.min >= dim.max:
        return dim.min
    low, high = max(dim.min, 1), dim.max
    size = round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
    return min(high, max(dim.least, size // dim.multiple_of * dim.multiple_of))


def domain_of_fixtures(dims: Sequence[str], sizes: Sequence[Mapping[str, int]]) -> Domain:
    """The domain that the user's fixtures alone prove: for each dim the sizes that they have."""
    result = {}
    for name in dims:
        seen = sorted({item[name] for item in sizes if name in item})
        if seen:
            result[name] = Dim(min=seen[0], max=seen[-1], opt=seen[0], tested=tuple(seen))
    return Domain(dims=result)


# Inputs generated from a seed, with values that make sense for the operators that read them.
#
# `generate` draws values according to the hints of `input_hints`. The `kind` of a hint is one of:
#
# - `index`: integers from `low` (default 0) up to but excluding `high`, some of them taken from
#   `among`; unique along the axis `distinct`;
# - `columns`: indices whose last axis holds one below each of `highs`; `distinct`: all rows differ;
# - `vector`: the elements `values`, in order; any further elements are 1;
# - `full`: `value` everywhere;
# - `split`: parts of `total`, as equal as possible;
# - `choice`: any of `values`;
# - `uniform`: floats from `low` up to but excluding `high`;
# - `boxes`: corners in order along the last axis, after a 0 if that axis has five elements;
# - `ones`, `small`, `positive`; `divisor`, which is never 0; `zero_point`, which is always 0.
#
# Numbers may be extents, which depend on the sizes of the inputs. With `list`, the value of an
# optional is a list of such tensors. `or` holds alternative hints (see `rejected_values`).
#
# Where the profile states the values of an input, they are drawn from these, whatever its hint
# says; only `end` then chooses one of the stated values throughout. A bound that is not stated is
# that of an index or of `uniform`.


def generate(
    values: Iterable[Value], sizes: Mapping[str, int], hints: Hints, seed: int
) -> dict[str, Any]:
    """Generated inputs by name: arrays, lists of arrays for sequences, dicts for maps.

    Equal arguments give equal values (PCG64 seeded with `seed` and the input's position).
    """
    result: dict[str, Any] = {}
    values = tuple(values)
    shapes = {value.name: value.shape_at(sizes) for value in values}
    for position, value in enumerate(values):
        rng = np.random.default_rng((seed, position))
        hint = hints.get(value.name, {})
        shape = shapes[value.name]
        if value.allowed is not None:
            result[value.name] = _stated_array(value, shape, sizes, hint, rng, shapes)
        elif value.kind == "sequence" or hint.get("list"):
            result[value.name] = [
                _array(value.dtype, shape, hint, rng, shapes) for _ in range(SEQUENCE_LENGTH)
            ]
        elif value.kind == "map":
            keys = _TEXTS[:3] if value.dtype == "string" else (0, 1, 2)
            result[value.name] = {key: float(rng.normal()) for key in keys}
        else:
            result[value.name] = _array(value.dtype, shape, hint, rng, shapes)
    return result


def _stated_array(
    value: Value,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    hint: Mapping[str, Json],
    rng: np.random.Generator,
    shapes: Shapes,
) -> Any:
    kind = hint.get("kind")
    ends = ends_of(value, sizes)
    if kind == "end" and hint["number"] < len(ends):
        return filled(value, shape, ends[hint["number"]])
    low = high = None
    if kind in ("index", "uniform"):
        low, high = hint.get("low", 0), _number(hint["high"], shapes)
        high -= kind == "index"
    return draw(value, shape, sizes, (low, high), rng)


def stated_ends(
    values: Iterable[Value], base: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Copies of the inputs `base` at `sizes`, one for each stated bound and value of an input.

    That input has it throughout; with each come the input's name and what it is, in words.
    """
    for value in values:
        for end in ends_of(value, sizes) if value.allowed is not None else ():
            array = filled(value, np.shape(base[value.name]), end)
            if array.size:
                yield value.name, value_text(end), {**base, value.name: array}


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
        and value.allowed is None
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
    if kind == "like" and hint["value"].ndim == len(shape):
        return _repeated(hint["value"], shape)
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
    if kind == "normal":
        return rng.normal(hint["mean"], abs(hint["scale"]), shape).astype(target)
    if kind == "boxes":
        return _boxes(shape, rng).astype(target)
    if dtype in ("complex64", "complex128"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(target)
    return np.asarray(rng.normal(size=shape), dtype=np.float32).astype(target)


def _repeated(sample: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """`sample` in another shape of its rank: along each axis cut off, or begun again."""
    for axis, size in enumerate(shape):
        sample = np.take(sample, np.arange(size) % max(1, sample.shape[axis]), axis=axis)
    return sample


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


# Alternative values for the inputs of a model that rejects the generated ones.
#
# ONNX Runtime's messages name the node that failed, not the input, and change between releases. So
# a few alternatives are tried in a fixed order, and their runs are counted: first what other rules
# requested of an input, then plain values.


class Alternative(NamedTuple):
    """Hints to use instead, and a description of what they change."""

    what: str
    hints: Hints


def hints_like(given: Sequence[FixtureInputs], values: Sequence[Value], hints: Hints) -> Hints:
    """`hints`, with which inputs take their values from the smallest of the user's fixtures.

    For operators that nobody here knows: their inputs may have to be files, or words of a kind.
    """
    samples = [
        each
        for each in given
        if all(getattr(each.inputs.get(value.name), "size", 0) for value in values)
    ]
    if not samples:
        return hints
    least = min(samples, key=lambda each: sum(value.size for value in each.inputs.values()))
    return {**hints, **{n: {"kind": "like", "value": v} for n, v in least.inputs.items()}}


def alternatives(values: Sequence[Value], hints: Hints) -> Iterator[Alternative]:
    """Alternative hints, likeliest first, at most `MAX_ALTERNATIVES`; each changes `hints` itself.

    Values that the profile states stay: first each end of them, one input at a time.  Then, in
    order: what other rules requested of one input; one plain number in all integer inputs, then
    in all boolean inputs; floats between 0 and 1; numeric text; a plain number in one integer
    input; the size of another input in it.
    """
    return itertools.islice(_all_alternatives(values, hints), MAX_ALTERNATIVES)


def _all_alternatives(values: Sequence[Value], hints: Hints) -> Iterator[Alternative]:
    for value in values:
        for number, end in enumerate(value.allowed.ends[:MAX_ENDS] if value.allowed else ()):
            throughout = {"kind": "end", "number": number, "text": str(end)}
            yield changed_hints(hints, [value], throughout)
    # Inputs whose first axis is the same dim would give the same number.
    sized = {other.shape[0]: other for other in reversed(values) if other.shape}
    values = [value for value in values if value.allowed is None]
    for value in values:
        for other in hints.get(value.name, {}).get("or", ()):
            yield changed_hints(hints, [value], other)
    integers = [value for value in values if "int" in value.dtype]
    plain: list[Mapping[str, Json]] = [
        {"kind": "full", "value": number} for number in _PLAIN_NUMBERS
    ]
    for hint in plain if integers else ():
        yield changed_hints(hints, integers, hint)
    booleans = [value for value in values if value.dtype == "bool"]
    for hint in plain[:2] if booleans else ():
        yield changed_hints(hints, booleans, hint)
    floats = [value for value in values if "float" in value.dtype]
    if floats:
        yield changed_hints(hints, floats, {"kind": "uniform", "low": 0.0, "high": 1.0})
    texts = [value for value in values if value.dtype == "string"]
    if texts:
        yield changed_hints(hints, texts, {"kind": "choice", "values": list(_NUMERIC_TEXTS)})
    for value in integers if len(integers) > 1 else ():
        for hint in plain:
            yield changed_hints(hints, [value], hint)
    for value, other in itertools.product(integers, reversed(sized.values())):
        if other is not value:
            yield changed_hints(hints, [value], {"kind": "full", "value": [other.name, 0]})


def changed_hints(hints: Hints, values: Sequence[Value], hint: Mapping[str, Json]) -> Alternative:
    """`hints`, with `hint` for each of `values` instead."""
    changed = dict(hints)
    for value in values:
        kept = {"list": True} if hints.get(value.name, {}).get("list") else {}
        changed[value.name] = {**hint, **kept}
    names = ", ".join(value.name for value in values)
    return Alternative(f"{names}: {_description(hint)}", changed)


def _description(hint: Mapping[str, Json]) -> str:
    kind = str(hint["kind"])
    if kind == "full":
        value = hint["value"]
        return f"the size of {value[0]}" if isinstance(value, list) else f"{value:g}"
    if kind == "uniform":
        return f"from {hint['low']:g} to {hint['high']:g}"
    if kind == "end":
        return f"{hint['text']} throughout"
    return {"choice": "any of a few"}.get(kind, f"as {kind}")


# Fixtures given by the user: `.npz` files, or folders of ONNX test data (`input_N.pb`).


def read_fixtures(
    path: Path, inputs: Sequence[Value], folder: Path, outputs: Sequence[Value] = ()
) -> list[Json]:
    """Convert the fixtures at `path` into value files below `folder`.

    `path` is a .npz file, a folder of ONNX test data, or a folder of either.  The keys of a .npz
    are input names; other keys may hold labels or expected outputs, which are only compared with
    each other: those of the names of `outputs`, and `output_N.pb`.  Returns the name and the input
    files of each fixture.  Raises AOTC-I001 (nothing is there), I024 (the content does not fit the
    inputs), I077 (it is pickled) and I087 (expected outputs of equal inputs differ).
    """
    if not path.exists():
        raise AotcError("AOTC-I001", "no such fixtures", where=str(path))
    sources = data_sources(path)
    if not sources:
        raise AotcError(
            "AOTC-I024",
            "no fixtures in the folder",
            where=str(path),
            expected="*.npz, or folders with input_0.pb",
        )
    result = []
    answered: list[tuple[str, str, dict[str, Any]]] = []
    for index, source in enumerate(sources):
        arrays = (
            _read_npz(source, inputs) if source.suffix == ".npz" else read_test_data(source, inputs)
        )
        place = folder / str(index)
        place.mkdir(parents=True)
        files = {}
        for number, value in enumerate(inputs):
            array = arrays[value.name]
            require_dtype(array, value, source)
            saved = values.save(array, place / f"input_{number}")
            files[value.name] = str(Path(saved).resolve())
        _refuse_contradiction(source, arrays, outputs, answered)
        result.append({"name": source.stem, "inputs": files})
    return result


def _refuse_contradiction(
    source: Path,
    arrays: Mapping[str, Any],
    outputs: Sequence[Value],
    answered: list[tuple[str, str, dict[str, Any]]],
) -> None:
    """Raise AOTC-I087 if a fixture before had equal inputs and other expected outputs.

    `answered` are the fixtures with expected outputs so far, each with a digest of its inputs.
    """
    expected = _expected(source, outputs)
    if not expected:
        return
    digest = digest_of(arrays)
    for name, other, before in answered:
        differ = [key for key in expected if other == digest and key in before]
        for key in differ:
            if not _agree(expected[key], before[key]):
                raise AotcError(
                    "AOTC-I087",
                    "two fixtures have equal inputs and different expected outputs",
                    where=f"{source.name}: {key}",
                    expected=f"as in {name}: {describe(before[key])}",
                    found=describe(expected[key]),
                )
    answered.append((source.name, digest, expected))


def _expected(source: Path, outputs: Sequence[Value]) -> dict[str, Any]:
    """Expected outputs beside a fixture's inputs, by name; none if they are none of this model."""
    try:
        if source.suffix == ".npz":
            with open_npz(source) as archive:
                return archive.arrays([value.name for value in outputs])
        return read_test_data(source, outputs, "output")
    except Exception:
        # Nothing else reads them: what is no expected output is no contradiction.
        return {}


def _agree(one: Any, other: Any) -> bool:
    """Whether two expected outputs may be answers of one model."""
    numbers = all(isinstance(each, np.ndarray) and each.dtype.kind in "fc" for each in (one, other))
    if numbers and one.shape == other.shape:
        return bool(np.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True))
    return same_bits(one, other)


def _read_npz(path: Path, inputs: Sequence[Value]) -> dict[str, Any]:
    try:
        with open_npz(path) as archive:
            arrays = {
                name: values.in_native_order(array)
                for name, array in archive.arrays([value.name for value in inputs]).items()
            }
    except PickledObjects as error:
        raise AotcError(
            "AOTC-I077", "the file holds Python objects", where=str(path), found=str(error)
        ) from None
    except Exception as error:
        # For a damaged archive numpy, zip and zlib raise any kind of error.
        raise AotcError("AOTC-I024", "not a .npz file", where=str(path), found=str(error)) from None
    missing = [value.name for value in inputs if value.name not in arrays]
    if missing:
        raise AotcError(
            "AOTC-I024", "inputs are missing", where=str(path), expected=", ".join(missing)
        )
    return arrays


def read_test_data(
    folder: Path, inputs: Sequence[Value], kind: str = "input", *, refusal: str = "AOTC-I024"
) -> dict[str, Any]:
    """Read ONNX test data from `folder`: `KIND_0.pb` and so on, in the order of `inputs`.

    Returns values by name.  Raises `refusal` if the files do not fit the inputs.
    """
    from google.protobuf.message import DecodeError

    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(re.sub(r"\D", "", p.stem) or 0))
    if len(files) != len(inputs):
        raise AotcError(
            refusal,
            f"the number of {kind}s differs",
            where=str(folder),
            expected=f"{len(inputs)} {kind}_N.pb",
            found=str(len(files)),
        )
    arrays: dict[str, Any] = {}
    for file, value in zip(files, inputs, strict=True):
        try:
            arrays[value.name] = _test_value(read_at_most(file, _MAX_TEST_BYTES), value)
        except (OSError, DecodeError, *_UNREADABLE) as error:
            raise AotcError(
                refusal,
                f"the file does not hold test data of this {kind}",
                where=str(file),
                found=str(error),
            ) from None
    return arrays


# What numpy and onnx raise for a tensor whose type, dims or data are not those of any.
_UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, MemoryError)
_MAX_TEST_BYTES: Final = 2**31 - 1


def _test_value(data: bytes, value: Value) -> Any:
    import onnx
    from onnx import numpy_helper

    if value.kind == "sequence":
        sequence = onnx.SequenceProto.FromString(data)
        _refuse_external(sequence)
        return numpy_helper.to_list(sequence)
    if value.kind == "optional":
        optional = onnx.OptionalProto.FromString(data)
        _refuse_external(optional)
        return numpy_helper.to_optional(optional)
    tensor = onnx.TensorProto.FromString(data)
    _refuse_external(tensor)
    if tensor.data_type == onnx.TensorProto.STRING:
        # Otherwise each text would take as much as the longest of them.
        texts = [text.decode("utf-8") for text in tensor.string_data]
        return np.array(texts, dtype=object).reshape(tensor.dims)
    return numpy_helper.to_array(tensor)


def _refuse_external(message: Any) -> None:
    """Raise ValueError if a tensor in test data names another file, which would be read."""
    # All that a tensor, a sequence or an optional holds of that kind.
    if message.DESCRIPTOR.name == "TensorProto":
        if message.external_data or message.data_location == message.EXTERNAL:
            raise ValueError("its data is in another file")
        return
    for field, held in message.ListFields():
        if field.message_type is not None:
            for each in held if field.is_repeated else (held,):
                _refuse_external(each)


def require_dtype(array: Any, value: Value, source: Path, *, refusal: str = "AOTC-I024") -> None:
    """Raise `refusal` if a value's dtype is not that of its input."""
    dtype = getattr(array, "dtype", None)
    if value.kind != "tensor" or dtype is None:
        return
    text = dtype.kind in "OUS"
    kind = "fixture" if refusal == "AOTC-I024" else "sample"
    if (value.dtype == "string") != text or (not text and values.dtype_name(dtype) != value.dtype):
        raise AotcError(
            refusal,
            f"the {kind}'s type differs from the input's",
            where=f"{source.name}: {value.name}",
            expected=value.dtype,
            found=values.dtype_name(dtype),
        )
