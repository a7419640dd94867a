"""Judges an output by its slices, each by its own scale.

A slice is all values at one index of an axis, a part that the graph joins or takes apart on an
axis, or the whole output.  With its values x and their errors d it passes if

    rms(d) <= max(share * scale + share / 4 * rms(x), inherent, 8 * rms(noise))

`scale` is the spread of x about its mean, at the upper end of its confidence interval, and at most
that of the whole output: a few values that are small by chance do not say that all such values are
small, nor does one of many shares of one sum.  What its share comes to is judged by the lower end
of the error's interval, at a level divided among the slices of an axis (Bonferroni).  Both by
the chi-square distribution (NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.3.1).  `noise` is
the difference between two computations of the original, where a second one is given, and `inherent`
what the variant's arithmetic makes of it (`NOISE_OF`), at most a part of rms(x).  ADR 70 says what
was measured.

Fill is left out of scales: numbers that stand in many places, such as 0 and -1, and those far from
all others, such as -1e9 under a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from aotc.base.records import record, replace
from aotc.spec.evidence import UNBOUNDED, SliceError, worst_of
from aotc.spec.parted import LayoutStep, PartedAxis
from aotc.spec.precision import Arithmetic, Tolerance

Array = np.ndarray[Any, Any]
# How many elements are looked at at a time: 2 MiB as float64.
CHUNK: Final = 1 << 18
NOISE: Final = 8.0
# By arithmetic, what its error is beside the noise of float32: the quotient of their roundings, and
# of 4 bits what was measured (ADR 70).
NOISE_OF: Final[Mapping[Arithmetic, float]] = {
    "float32": 1.0,
    "float16": 2.0**13,
    "tf32": 2.0**13,
    "bfloat16": 2.0**16,
    "quantized": 2.0**16,
    "int8": 2.0**16,
    "int4": 2.0**19,
}
# Such noise excuses less than a tenth of a slice, where a variant computes in integers less than
# three tenths, and in 4 bits less than half: what is lost is lost.
_MOST_EXCUSED: Final[Mapping[Arithmetic, float]] = {
    "float32": 0.09,
    "float16": 0.09,
    "tf32": 0.09,
    "bfloat16": 0.09,
    "quantized": 0.28,
    "int8": 0.28,
    "int4": 0.5,
}
# The smallest number of float16.
_LEAST_HALF: Final = 2.0**-24
_AT_FILL: Final = ("fill_errors", "fill_count")
# Chance that a slice's scale is above the upper end of its interval, and that any slice of an axis
# has errors below the lower end of theirs.
_SCALE_LEVEL: Final = 1e-3
_LEVEL: Final = 0.01
# What a slice may err by where a tolerance does not say, as a share of its scale.
_LEAST: Final = 0.01
_SAMPLE: Final = 1 << 16
# A number in this share of all places, and in so many times as many as usual ones, is fill.
_FILL_SHARE: Final = 0.01
_FILL_TIMES: Final = 16
_MAX_FILLS: Final = 3
# Fill far from all others: by how much, and from which size on.
_FAR: Final = 30.0
_LEAST_FAR: Final = 1000.0
# How far the sum of a distribution may be from one.
_SHARES: Final = 1e-2
# An axis with more indices is judged by its parts alone.
_MOST_SLICES: Final = 1 << 16
# Fewer values say nothing of a scale of their own, and the bound of each value judges them.
_LEAST_VALUES: Final = 16


@record
class Fill:
    """What of a tensor is fill: `numbers`, and all whose magnitude is above `far`.

    `step` is that between the values of a tensor of few distinct ones, as a quantized model's are.
    """

    numbers: tuple[float, ...] = ()
    far: float = math.inf
    step: float = 0.0

    def places(self, values: Array) -> tuple[Array | None, Array | None]:
        """Where `values` have the numbers, and where they are far; None: nowhere."""
        same = None
        for number in self.numbers:
            here = values == number
            same = here if same is None else same | here
        return same, np.abs(values) > self.far if math.isfinite(self.far) else None


def find_fill(reference: Array) -> Fill:
    """The fill of a tensor of real numbers, from some tens of thousands of its values."""
    flat = reference.reshape(-1)
    sample = flat[:: max(1, flat.size // _SAMPLE)].astype(np.float64)
    sample = sample[np.isfinite(sample)]
    if sample.size < 2:
        return Fill()
    numbers, counts = np.unique(sample, return_counts=True)
    often = counts >= max(2, _FILL_SHARE * sample.size, _FILL_TIMES * np.median(counts))
    far = _far(np.abs(numbers), flat)
    repeated = [
        float(number) for number in numbers[often][np.argsort(-counts[often])] if abs(number) <= far
    ]
    kept = tuple(repeated[:_MAX_FILLS])
    # Where nothing else is left, it is what the output says.
    return Fill(
        numbers=kept if len(kept) < np.count_nonzero(np.abs(numbers) <= far) else (),
        far=far,
        step=_step(numbers) if numbers.size <= sample.size // 4 else 0.0,
    )


def _step(numbers: Array) -> float:
    """The step of which all differences of sorted numbers are multiples; 0: there is none."""
    with np.errstate(over="ignore"):
        steps = np.diff(numbers)
    least = float(np.min(steps, initial=math.inf))
    if not 0 < least < math.inf:
        return 0.0
    with np.errstate(over="ignore"):
        counts = steps / least
    if not np.isfinite(counts).all():
        return 0.0
    return least if np.all(np.abs(counts - np.rint(counts)) < 0.01) else 0.0


def _far(magnitudes: Array, flat: Array) -> float:
    """Above which magnitude values are far from all others; infinite: none is."""
    largest = 0.0
    for start in range(0, flat.size, CHUNK):
        found = np.abs(flat[start : start + CHUNK].astype(np.float64))
        largest = max(largest, float(np.max(found[np.isfinite(found)], initial=0.0)))
    if largest < _LEAST_FAR:
        return math.inf
    ordered = np.unique(np.append(magnitudes, largest))
    ordered = ordered[ordered > 0]
    below, above = ordered[:-1], ordered[1:]
    (gaps,) = np.nonzero((above >= _LEAST_FAR) & (below < above / _FAR))
    return float(np.sqrt(below[gaps[0]]) * np.sqrt(above[gaps[0]])) if gaps.size else math.inf


def _is_distribution(reference: Array, axis: int) -> bool:
    """Whether all values along an axis are shares of one."""
    # Most tensors say no by a few of their values.
    some = reference.reshape(-1)[:_SAMPLE]
    if np.any(some < 0) or np.any(some > 1 + _SHARES):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        total = reference.sum(axis=axis, dtype=np.float64)
    return bool(np.all(np.abs(total - 1) <= _SHARES) and np.all(reference >= 0))


def _block_indices(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Slices of every axis that together cover a tensor, each of at most `CHUNK` elements."""
    inner = 1
    axis = len(shape)
    while axis and inner * shape[axis - 1] <= CHUNK:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield tuple(slice(0, size) for size in shape)
        return
    rest = tuple(slice(0, size) for size in shape[axis:])
    step = max(1, CHUNK // max(1, inner))
    for outer in np.ndindex(*shape[: axis - 1]):
        before = tuple(slice(at, at + 1) for at in outer)
        for start in range(0, shape[axis - 1], step):
            yield (*before, slice(start, min(start + step, shape[axis - 1])), *rest)


_ROWS: Final = ("count", "total", "squares", "errors", "fill_count", "fill_errors", "noise")


@record
class SliceSums:
    """Sums over each slice of one axis: `table` is float64, with a row for each of `_ROWS`.

    Rows are of values that are no fill, and of the errors in places of fill.  `step` is the
    tensor's; `shared`: values along the axis are shares of one, so that its slices have one scale.
    """

    table: Array
    step: float = 0.0
    unit: float = 1.0
    shared: bool = False

    def row(self, name: str) -> Array:
        """One sum of each slice."""
        found: Array = self.table[_ROWS.index(name)]
        return found

    def mean(self, name: str, count: str = "count") -> Array:
        """A sum of each slice by its number of values; 0 where it has none."""
        number = self.row(count)
        found: Array = np.divide(
            self.row(name), number, out=np.zeros(len(number)), where=number > 0
        )
        return found

    def __add__(self, other: SliceSums) -> SliceSums:
        """Of the values of both, for axes of one size."""
        return replace(
            self,
            table=self.table + other.table,
            step=max(self.step, other.step),
            shared=self.shared or other.shared,
        )

    def whole(self) -> SliceSums:
        """Of all slices together."""
        return replace(self, table=self.table.sum(axis=1, keepdims=True), shared=False)


def _sums_of(
    reference: Array,
    actual: Array,
    second: Array | None,
    fill: Fill,
    slices: Sequence[tuple[int, Array]],
    unit: float,
) -> list[SliceSums]:
    """The sums over slices of axes, for tensors of one shape of rank >= 1.

    `slices` are axes with the slice to which each index belongs, in order.
    """
    shape = reference.shape
    tables = [np.zeros((len(_ROWS), int(belongs[-1]) + 1)) for _, belongs in slices]
    for index in _block_indices(shape):
        expected = reference[index].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            error = actual[index].astype(np.float64) - expected
        known = np.isfinite(expected) & np.isfinite(error)
        same, far = fill.places(expected)
        if far is not None:
            known &= ~far
        filled = known & same if same is not None else None
        plain = known & ~same if same is not None else known
        total = np.where(plain, expected, 0.0) / unit
        values: list[Array | None] = [plain, total, total**2, None, None, None, None]
        with np.errstate(over="ignore", invalid="ignore"):
            values[3] = np.where(plain, error / unit, 0.0) ** 2
            if filled is not None:
                values[4:6] = filled, np.where(filled, error / unit, 0.0) ** 2
            if second is not None:
                between = second[index].astype(np.float64) - expected
                values[6] = np.where(known & np.isfinite(between), between / unit, 0.0) ** 2
        for (axis, belongs), table in zip(slices, tables, strict=True):
            others = tuple(each for each in range(len(shape)) if each != axis)
            for row, value in zip(table, values, strict=True):
                if value is not None:
                    np.add.at(row, belongs[index[axis]], value.sum(axis=others))
    return [SliceSums(table=table, step=fill.step / unit, unit=unit) for table in tables]


def chi_square_quantile(level: float, freedom: float) -> float:
    """The value that a chi-square variable of `freedom` > 0 degrees is below with chance `level`.

    Within a few per cent, for levels far from one half, and not above it for low ones.  By Wilson
    and Hilferty's approximation (Proc. Natl. Acad. Sci. 17, 1931), or for low levels where that is
    larger by the first term of the distribution's series.
    """
    # A load that judges no slice has no need of it.
    from statistics import NormalDist

    part = 2 / (9 * freedom)
    cubed = max(1 - part + NormalDist().inv_cdf(level) * math.sqrt(part), 0.0)
    found = freedom * cubed**3
    if level > 0.5:
        return found
    half = freedom / 2
    return max(found, 2 * math.exp((math.log(level) + math.lgamma(half + 1)) / half))


@record
class SliceLimits:
    """What a slice's error may be: a share of its scale, and of its root mean square.

    `noise` is how many times the noise of float32 an arithmetic makes, which excuses up to the
    share `excused` of a slice, and `resolution` its smallest number above 0.
    """

    share: float
    rest: float
    noise: float = 0.0
    excused: float = 0.0
    resolution: float = 0.0

    @classmethod
    def of(cls, tolerance: Tolerance, arithmetic: Arithmetic | None = None) -> SliceLimits:
        """The limits of a tolerance; where it states no share, it follows from `rtol`."""
        share = tolerance.max_slice
        if share is None:
            share = max(tolerance.rtol, _LEAST)
        if arithmetic is None:
            return cls(share=share, rest=share / 4)
        return cls(
            share=share,
            rest=share / 4,
            noise=NOISE_OF[arithmetic],
            excused=_MOST_EXCUSED[arithmetic],
            resolution=_LEAST_HALF if arithmetic == "float16" else 0.0,
        )


class SlicePool:
    """The sums of one variant's outputs over all fixtures, for axes of one size in all of them.

    A slice of one value in each call has enough of them over all calls.
    """

    def __init__(self) -> None:
        """A pool without answers."""
        self._sums: dict[str, dict[PartedAxis | int, tuple[SliceSums, int]]] = {}
        self._limits: dict[str, SliceLimits] = {}
        self._rows: dict[str, set[int]] = {}

    def rows(self, name: str) -> set[int]:
        """The rows of one output that are in it, for `new_rows`."""
        return self._rows.setdefault(name, set())

    def add(
        self, name: str, found: Mapping[PartedAxis | int, SliceSums], limits: SliceLimits
    ) -> None:
        """Add the sums of one output in one call."""
        kept = self._sums.setdefault(name, {})
        self._limits[name] = limits
        for key, sums in found.items():
            before, calls = kept.get(key, (None, 0))
            if before is None:
                kept[key] = sums, 1
            elif before.table.shape == sums.table.shape and before.unit == sums.unit:
                kept[key] = before + sums, calls + 1

    def worst(self) -> dict[str, SliceError]:
        """By output with answers of several calls, the slice with the largest error."""
        found = {}
        for name, kept in self._sums.items():
            several = {key: sums for key, (sums, calls) in kept.items() if calls > 1}
            worst = worst_slice(several, self._limits[name]) if several else None
            if worst is not None:
                found[name] = worst
        return found


def new_rows(reference: Array, actual: Array, known: set[int]) -> Array | None:
    """The indices of rows along the first axis that are not `known`, which gets them; None: all.

    Equal rows, as those of samples that are repeated to fill a batch, are one: they say no more of
    a scale.
    """
    if not reference.ndim or not len(reference) or len(reference) > _MOST_SLICES:
        return None
    found = []
    for at, (one, other) in enumerate(zip(reference, actual, strict=True)):
        row = hash((one.tobytes(), other.tobytes()))
        if row not in known:
            known.add(row)
            found.append(at)
    return np.array(found, np.int64) if len(found) < len(reference) else None


def sums_by_axis(
    reference: Array,
    actual: Array,
    second: Array | None,
    fill: Fill,
    axis: int | None,
    parted: Sequence[PartedAxis],
    unit: float = 1.0,
) -> dict[PartedAxis | int, SliceSums]:
    """The sums over the slices of `axis` (None: of every one), and over the parts of `parted`.

    Of every axis too where the output has no such one.  The tensors are of one shape, of real
    numbers; `second` are the answers of another computation of the original.  Sums are of values
    divided by `unit`, as squares may exceed float64's range.
    """
    if not reference.ndim:
        reference, actual = reference.reshape(1), actual.reshape(1)
        second = second.reshape(1) if second is not None else None
    if not reference.size:
        return {}
    known = axis is not None and -reference.ndim <= axis < reference.ndim
    axes = (axis % reference.ndim,) if axis is not None and known else range(reference.ndim)
    sizes = {each: reference.shape[each] for each in axes if reference.shape[each] <= _MOST_SLICES}
    slices = [(each, np.arange(size)) for each, size in sizes.items()]
    if not slices:
        slices = [(0, np.broadcast_to(np.int8(0), reference.shape[:1]))]
    sums = _sums_of(reference, actual, second, fill, slices, unit)
    found: dict[PartedAxis | int, SliceSums] = {}
    for (each, _), made in zip(slices, sums, strict=True):
        shared = reference.shape[each] > 1 and _is_distribution(reference, each)
        found[each] = replace(made, shared=shared)
    for part in parted if axis is None else ():
        try:
            one, other = (laid_out(array, part.steps) for array in (reference, actual))
            again = laid_out(second, part.steps) if second is not None else None
        except ValueError:
            # The graph has another shape at these sizes than its inference says.
            continue
        size = one.shape[part.axis] if part.axis < one.ndim else 0
        if part.starts[-1] >= size:
            continue
        each_index = replace(part, starts=tuple(range(size)))
        # An axis of the output itself has been judged by its indices.
        keys = (part,) if len(part.starts) > 1 else ()
        for key in (*keys, each_index) if part.steps and size <= _MOST_SLICES else keys:
            belongs = np.searchsorted(key.starts, np.arange(size), side="right") - 1
            (found[key],) = _sums_of(one, other, again, fill, [(key.axis, belongs)], unit)
    return found


def laid_out(array: Array, steps: Sequence[LayoutStep]) -> Array:
    """An output in the form in which its graph made it; raises ValueError if it has no such one."""
    shape = array.shape
    for step in steps:
        if step.kind == "transpose":
            array = array.transpose(step.dims)
        elif step.kind == "slice":
            axis, start, stop = step.dims
            if axis >= array.ndim or stop > array.shape[axis]:
                raise ValueError("the part is not in the output")
            array = array[(slice(None),) * axis + (slice(start, stop),)]
        else:
            array = array.reshape([shape[-2 - dim] if dim < -1 else dim for dim in step.dims])
    return array


def worst_slice(
    found: Mapping[PartedAxis | int, SliceSums], limits: SliceLimits
) -> SliceError | None:
    """The slice whose error is largest beside what it may be; None if nothing can be judged."""
    # The sums of any axis are those of the whole output as well.
    whole = next((sums.whole() for sums in found.values()), None)
    if whole is None or not whole.row("squares")[0]:
        return None
    scale = float(_scales(whole, math.inf)[0])
    judged = (_worst(sums, limits, scale, key) for key, sums in found.items())
    return worst_of(_worst(whole, limits, math.inf, None), *judged)


def _worst(
    sums: SliceSums, limits: SliceLimits, whole: float, key: PartedAxis | int | None
) -> SliceError | None:
    scales = _scales(sums, whole)
    judged = np.isfinite(scales) & (sums.row("count") + sums.row("fill_count") >= _LEAST_VALUES)
    if not judged.any():
        return None
    rms, noise = np.sqrt(sums.mean("squares")), np.sqrt(sums.mean("noise"))
    error, at_fill = (np.sqrt(sums.mean(*names)) for names in (("errors",), _AT_FILL))
    count = np.where(at_fill > error, sums.row("fill_count"), sums.row("count"))
    error = np.maximum(error, at_fill)
    few = np.array([_lower_factor(_LEVEL / len(scales), each) for each in count.tolist()])
    # What the arithmetic itself does to such a slice.
    inherent = np.minimum(limits.noise * noise * few, limits.excused * rms)
    allowed = np.maximum(limits.share * scales * few + limits.rest * rms, inherent)
    allowed = np.maximum(allowed, NOISE * noise) + limits.resolution / sums.unit
    # Where all values are one, the next one is as near as it gets.
    allowed = np.where(scales < sums.step, np.maximum(allowed, 1.01 * sums.step), allowed)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Without an error nothing need be allowed; where nothing is, any error is too much.
        ratios = np.where(error > 0, np.minimum(error / allowed, UNBOUNDED), 0.0)
    at = int(np.argmax(np.where(judged, ratios, -1.0)))
    first, node = at, ""
    last: int | None = at
    if isinstance(key, PartedAxis):
        starts = key.starts
        first, node = starts[at], key.node
        last = starts[at + 1] - 1 if at + 1 < len(starts) else None
    return SliceError(
        axis=key.axis if isinstance(key, PartedAxis) else key,
        first=first,
        last=last,
        node=node,
        values=int(sums.row("count")[at]),
        scale=_finite(scales[at] * sums.unit),
        error=_finite(error[at] * sums.unit),
        allowed=_finite(allowed[at] * sums.unit),
        ratio=float(ratios[at]),
    )


def _finite(number: float) -> float:
    return float(min(number, UNBOUNDED))


def _scales(sums: SliceSums, whole: float) -> Array:
    """The scale of each slice, infinite where nothing says how large it is."""
    count = sums.row("count")
    variance = sums.mean("squares") - sums.mean("total") ** 2
    spread = np.sqrt(np.maximum(variance * count / np.maximum(count - 1, 1), 0.0))
    factors = np.array([_upper_factor(each) for each in count.tolist()])
    # What is 0 everywhere has no scale of its own.
    several = np.isfinite(factors) & (sums.row("squares") > 0) & (not sums.shared)
    upper = np.where(several, spread * np.where(several, factors, 1.0), math.inf)
    scales: Array = np.maximum(spread, np.minimum(upper, whole))
    return scales


@cache
def _lower_factor(level: float, count: float) -> float:
    """By what the errors of `count` values are above the lower end of their confidence interval."""
    return math.sqrt(chi_square_quantile(1 - level, count) / count) if count else 1.0


@cache
def _upper_factor(count: float) -> float:
    """By what a spread of `count` values is below the upper end of its confidence interval."""
    if count < _LEAST_VALUES:
        return math.inf
    return math.sqrt((count - 1) / chi_square_quantile(_SCALE_LEVEL, count - 1))
