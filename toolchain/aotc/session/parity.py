"""Compares outputs with the reference's: tolerances, gates, agreement, and equal calls.

Where both are finite: |actual - reference| <= atol + rtol * max|reference|, the largest of values
that are no fill; in places of fill |reference| is that of the fill, if it is more.  Every slice is
judged by its own scale as well (`slices`).  NaN and infinities must be at the same positions with
the same sign.  Integers, booleans and text must be equal.  The cosine of the flattened tensors,
without fill far from all else, must reach `min_cosine`, unless there is only one element, a norm is
zero, or every error is within `atol` (the direction of a small tensor is noise).  Kind, element
type and shape must agree.

A gate of the profile adds limits, or takes the tolerance's place.

If no error can be measured (another shape, NaN at another position), `max_abs` and `max_rel` are
`UNBOUNDED`, the largest float, as JSON has no infinity; `reason` tells what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from aotc.base.records import field, record, replace
from aotc.graph.values import Data, describe, dtype_name
from aotc.session.limits import FORM, judged_limits
from aotc.session.slices import (
    CHUNK,
    Fill,
    SliceLimits,
    SlicePool,
    SliceSums,
    find_fill,
    new_rows,
    sums_by_axis,
    worst_slice,
)
from aotc.spec.evidence import (
    UNBOUNDED,
    DifferingOutput,
    OutputError,
    SliceError,
    worst_of,
)
from aotc.spec.parted import PartedAxis
from aotc.spec.precision import Arithmetic, OutputGate, Tolerance

_NO_FILL: Final = Fill()
TOLERANCE: Final = "tolerance"
SLICE: Final = "slice"
EQUAL: Final = "equal values"
# What replaces the error of an output whose values floats decide: see `session.decisions`.
OwnRule = Callable[[Data, Data, Tolerance, OutputError], OutputError]


@record
class Beside:
    """What an output is judged by beside its answers.

    Without `slices` they are not judged.  `parted` are the axes on which the graph joins its parts,
    `second` is the answer of another computation of the original (None: there is none), of which
    follows what the variant's `arithmetic` does, and `pool` gets the sums over slices.
    """

    slices: bool = True
    parted: tuple[PartedAxis, ...] = ()
    second: Data = None
    arithmetic: Arithmetic | None = None
    pool: SlicePool | None = None


_NOTHING: Final = Beside()
WITHOUT_SLICES: Final = Beside(slices=False)


def compare(
    reference: Data,
    actual: Data,
    tolerance: Tolerance,
    name: str,
    gate: OutputGate | None = None,
    beside: Beside = _NOTHING,
    decided: OwnRule | None = None,
) -> OutputError:
    """Compare one output; sequences and maps item by item, and the worst item counts.

    With a `gate` its limits are judged as well, or with its `instead` in place of the tolerance;
    what it asks for and is not cheap, such as agreement, is measured for a gate alone.  `decided`
    judges values that floats decide by their own rule.
    """
    worst = _Item(OutputError(output=name, max_abs=0.0, max_rel=0.0))
    for found in _errors(reference, actual, tolerance, name, gate, beside):
        worst.add(found)
    error = worst.error
    if decided is not None:
        error = decided(reference, actual, tolerance, error)
    return error if gate is None else gated(error, gate)


def same_bits(one: Data, other: Data) -> bool:
    """Whether two values of one output are equal to the bit, NaN included."""
    if one is other:
        return True
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.dtype.kind != "O":
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return bool(one.tolist() == other.tolist())
    return repr(one) == repr(other)


@record(frozen=False, kw_only=False)
class _Item:
    """One tensor of an output, or all so far: errors, and the counts that shares are made of."""

    error: OutputError
    agreeing: int = 0
    rows: int = 0
    not_finite: int = 0
    elements: int = 0

    def add(self, other: _Item) -> None:
        """The worst of both; shares are of all elements and rows."""
        one, found = self.error, other.error
        self.agreeing += other.agreeing
        self.rows += other.rows
        self.not_finite += other.not_finite
        self.elements += other.elements
        self.error = OutputError(
            output=one.output,
            max_abs=max(one.max_abs, found.max_abs),
            max_rel=max(one.max_rel, found.max_rel),
            cosine=_minimum(one.cosine, found.cosine),
            sqnr_db=_minimum(one.sqnr_db, found.sqnr_db),
            agreement=self.agreeing / self.rows if self.rows else None,
            non_finite_share=self.not_finite / self.elements if self.elements else 0.0,
            passed=one.passed and found.passed,
            # What cannot be compared at all is told before what differs.
            reason=(found if _severity(found) > _severity(one) else one).reason,
            breached=max(one, found, key=_severity).breached,
            worst_slice=worst_of(one.worst_slice, found.worst_slice),
            rule=one.rule or found.rule,
            differing=one.differing + found.differing,
        )


def _severity(error: OutputError) -> int:
    return 2 if FORM in error.breached else len(error.breached)


def _minimum(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _errors(
    reference: Data,
    actual: Data,
    tolerance: Tolerance,
    name: str,
    gate: OutputGate | None,
    beside: Beside,
) -> Iterator[_Item]:
    if reference is None or actual is None:
        if reference is not None or actual is not None:
            yield _mismatch(name, describe(reference), describe(actual))
    elif isinstance(reference, dict):
        if not isinstance(actual, dict) or set(reference) != set(actual):
            yield _mismatch(name, f"map with keys {_keys_text(reference)}", _keys_text(actual))
        elif reference:
            keys = sorted(reference)
            yield _array_error(
                np.array([reference[key] for key in keys]),
                np.array([actual[key] for key in keys]),
                tolerance,
                name,
                gate,
                replace(beside, second=None, pool=None),
            )
    elif isinstance(reference, list | tuple):
        if not isinstance(actual, list | tuple) or len(reference) != len(actual):
            yield _mismatch(name, describe(reference), describe(actual))
        else:
            for one, other in zip(reference, actual, strict=True):
                alone = replace(beside, second=None, pool=None)
                yield from _errors(one, other, tolerance, name, gate, alone)
    elif isinstance(actual, dict | list | tuple):
        yield _mismatch(name, describe(reference), describe(actual))
    else:
        yield _array_error(np.asarray(reference), np.asarray(actual), tolerance, name, gate, beside)


def _keys_text(value: Data) -> str:
    if not isinstance(value, dict):
        return describe(value)
    shown = ", ".join(repr(key) for key in sorted(value, key=str)[:5])
    return shown + (", ..." if len(value) > 5 else "")


def _mismatch(name: str, expected: str, found: str) -> _Item:
    return _Item(_failure(name, f"expected {expected}, found {found}", FORM))


def _failure(name: str, reason: str, breached: str) -> OutputError:
    return OutputError(
        output=name,
        max_abs=UNBOUNDED,
        max_rel=UNBOUNDED,
        passed=False,
        reason=reason,
        breached=(breached,),
    )


def _array_error(
    reference: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    tolerance: Tolerance,
    name: str,
    gate: OutputGate | None,
    beside: Beside,
) -> _Item:
    dtype = dtype_name(reference.dtype)
    if dtype != dtype_name(actual.dtype) or reference.shape != actual.shape:
        return _mismatch(name, describe(reference), describe(actual))
    if dtype == "string":
        differ = int(np.count_nonzero(reference.astype(object) != actual.astype(object)))
        error = OutputError(output=name, max_abs=0.0, max_rel=0.0)
        if differ:
            error = _failure(name, f"{differ} of {reference.size} texts differ", TOLERANCE)
        error = replace(error, rule=EQUAL, differing=differ)
        return _Item(error, reference.size - differ, reference.size, 0, reference.size)
    if dtype == "bool" or reference.dtype.kind in "iu" or dtype.startswith(("int", "uint")):
        return _exact_error(reference, actual, name, gate)
    return _float_error(reference, actual, tolerance, name, gate, beside)


def _exact_error(
    reference: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    name: str,
    gate: OutputGate | None,
) -> _Item:
    differ, largest, scale = 0, 0.0, 0.0
    for one, other in _chunks(reference, actual):
        count = int(np.count_nonzero(one != other))
        if count:
            differ += count
            expected, found = one.astype(np.float64), other.astype(np.float64)
            # Neighbors above 2^53 are equal as float64, but differ by at least one.
            largest = max(largest, 1.0, float(np.max(np.abs(found - expected))))
        scale = max(scale, float(np.max(np.abs(one.astype(np.float64)))))
    cosine = sqnr = None
    if gate is not None and (gate.min_cosine is not None or gate.min_sqnr_db is not None):
        sums = _sums_of(reference, actual, 1.0)
        cosine, sqnr = _cosine(sums), _sqnr_db(sums, reference, actual)
    error = OutputError(
        output=name,
        max_abs=largest,
        max_rel=_relative(largest, scale),
        cosine=cosine,
        sqnr_db=sqnr,
        passed=not differ,
        reason=f"{differ} of {reference.size} values differ" if differ else "",
        breached=(TOLERANCE,) if differ else (),
        rule=EQUAL,
        differing=differ,
    )
    return _Item(error, reference.size - differ, reference.size, 0, reference.size)


def _chunks(
    *arrays: np.ndarray[Any, Any],
) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, CHUNK):
        yield tuple(array[start : start + CHUNK] for array in flat)


@record(frozen=False, kw_only=False)
class _Sums:
    """Sums over two tensors; products are of values divided by one scale.

    `fill` are the largest errors by numbers of fill, and `far` is that of far fill by its size.
    """

    error: float = 0.0
    reference: float = 0.0
    dot: float = 0.0
    squares: float = 0.0
    actual_squares: float = 0.0
    noise: float = 0.0
    misplaced: int = 0
    not_finite: int = 0
    fill: dict[float, float] = field(default_factory=dict)
    far: float = 0.0


def _float_error(
    reference: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    tolerance: Tolerance,
    name: str,
    gate: OutputGate | None,
    beside: Beside,
) -> _Item:
    fill = find_fill(_real(reference))
    sums = _sums_of(reference, actual, 1.0, fill)
    if sums.misplaced:
        what = f"{sums.misplaced} NaN or infinite values differ"
        return _Item(_failure(name, what, FORM), elements=reference.size)
    # Squares of such numbers exceed the range of float64.
    unit = sums.reference if sums.reference and not 1e-140 < sums.reference < 1e140 else 1.0
    if unit != 1.0:
        sums = _sums_of(reference, actual, unit, fill)
    cosine = _cosine(sums)
    bound = tolerance.atol + tolerance.rtol * sums.reference
    reason = ""
    # "not <=", so that an error that overflowed to NaN fails as well.
    if not sums.error <= bound:
        reason = f"error {sums.error:.3g} exceeds {bound:.3g}"
    elif (
        cosine is not None
        and reference.size > 1
        and sums.error > tolerance.atol
        and cosine < tolerance.min_cosine
    ):
        reason = f"cosine {cosine:.6f} is below {tolerance.min_cosine:g}"
    else:
        reason = _error_at_fill(sums, tolerance)
    slices = None
    if beside.slices:
        slices = _slice_error(reference, actual, tolerance, fill, gate, beside, name, unit)
    breached = (TOLERANCE,) if reason else ()
    if slices is not None and slices.ratio > 1:
        reason, breached = reason or slice_reason(slices), (*breached, SLICE)
    largest = max(sums.error, *sums.fill.values()) if sums.fill else sums.error
    error = OutputError(
        output=name,
        max_abs=_finite(largest),
        max_rel=_relative(largest, sums.reference),
        cosine=cosine,
        sqnr_db=_sqnr_db(sums, reference, actual, fill),
        worst_slice=slices,
        passed=not reason,
        reason=reason,
        breached=breached,
    )
    agreeing = rows = 0
    if gate is not None and gate.min_agreement is not None:
        agreeing, rows = agreeing_rows(reference, actual, gate.top_k)
    values = _real(reference).size
    return _Item(error, agreeing, rows, sums.not_finite, values)


def slice_reason(found: SliceError) -> str:
    """What is wrong with a slice, in words."""
    return (
        f"error {found.error:.3g} (rms) at {found.place} exceeds {found.allowed:.3g}, "
        f"where its scale is {found.scale:.3g}"
    )


def _slice_error(
    reference: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    tolerance: Tolerance,
    fill: Fill,
    gate: OutputGate | None,
    beside: Beside,
    name: str,
    unit: float,
) -> SliceError | None:
    second = beside.second
    if not isinstance(second, np.ndarray) or second.shape != reference.shape:
        second = None
    arrays = _real(reference), _real(actual), _real(second) if second is not None else None
    axis = gate.axis if gate is not None else None
    limits = SliceLimits.of(tolerance, beside.arithmetic)

    def sums(rows: np.ndarray[Any, Any] | None) -> dict[PartedAxis | int, SliceSums]:
        one, other, again = (
            array if array is None or rows is None else array[rows] for array in arrays
        )
        assert one is not None
        assert other is not None
        return sums_by_axis(one, other, again, fill, axis, beside.parted, unit)

    known: set[int] = set()
    found = sums(new_rows(arrays[0], arrays[1], known))
    if beside.pool is not None:
        pooled = beside.pool.rows(name)
        rows = new_rows(arrays[0], arrays[1], pooled) if known & pooled else None
        pooled |= known
        beside.pool.add(name, found if rows is None else sums(rows), limits)
    return worst_slice(found, limits)


def _error_at_fill(sums: _Sums, tolerance: Tolerance) -> str:
    """What is wrong in places of fill, in words."""
    for number, error in sums.fill.items():
        bound = tolerance.atol + tolerance.rtol * max(sums.reference, abs(number))
        if not error <= bound:
            return f"error {error:.3g} in places of {number:g} exceeds {bound:.3g}"
    if not sums.far <= tolerance.rtol:
        return f"fill far from all other values differs by {sums.far:.3g} of itself"
    return ""


def _sums_of(
    reference: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    scale: float,
    fill: Fill = _NO_FILL,
) -> _Sums:
    sums = _Sums()
    for one, other in _chunks(_real(reference), _real(actual)):
        expected, found = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(expected)
        both = finite & np.isfinite(found)
        if not both.all():
            same = (expected == found) | (np.isnan(expected) & np.isnan(found))
            sums.misplaced += int(np.count_nonzero(~both & ~same))
            sums.not_finite += int(np.count_nonzero(~both))
            expected, found = expected[both], found[both]
        with np.errstate(over="ignore", invalid="ignore"):
            difference = found - expected
            _, far = fill.places(expected)
            if far is not None and far.any():
                shares = np.abs(difference[far]) / np.abs(expected[far])
                sums.far = max(sums.far, float(np.max(shares)))
                expected, found, difference = expected[~far], found[~far], difference[~far]
            if not expected.size:
                continue
            errors, plain = np.abs(difference), np.ones(1, bool)
            for number in filter(None, fill.numbers):
                here = expected == number
                largest = float(np.max(errors[here], initial=0.0))
                sums.fill[number] = max(sums.fill.get(number, 0.0), largest)
                plain = plain & ~here
            sums.error = max(sums.error, float(np.max(errors, where=plain, initial=0.0)))
            largest = float(np.max(np.abs(expected), where=plain, initial=0.0))
            sums.reference = max(sums.reference, largest)
            if scale != 1.0:
                expected, found = expected / scale, found / scale
                difference = difference / scale
            # No BLAS: its threads keep spinning for about 50 ms, which slows the next run.
            sums.dot += float(np.sum(expected * found))
            sums.squares += float(np.sum(expected * expected))
            sums.actual_squares += float(np.sum(found * found))
            sums.noise += float(np.sum(difference * difference))
    return sums


def sqnr_db(reference: Data, actual: Data) -> float | None:
    """10 log10(sum reference^2 / sum (actual - reference)^2) over finite elements, in decibels.

    Arrays are of one shape, of any kind of numbers.  None if either sum is zero, or for values that
    are not tensors of numbers.
    """
    if not isinstance(reference, np.ndarray) or reference.dtype.kind in "OSUT":
        return None
    return _sqnr_db(_sums_of(reference, actual, 1.0), reference, actual)


def _sqnr_db(
    sums: _Sums,
    reference: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    fill: Fill = _NO_FILL,
) -> float | None:
    """10 log10(sum reference^2 / sum (actual - reference)^2); None if either sum is zero."""
    if not sums.error or not sums.reference:
        return None
    if 1e-140 < sums.noise < 1e140 and 1e-140 < sums.squares < 1e140:
        return 10 * math.log10(sums.squares / sums.noise)
    # Squares, or their quotient, may leave float64's range: each sum is of values divided by their
    # largest.
    halves = not math.isfinite(sums.error)
    largest = [sums.reference, sums.error]
    if halves:
        largest[1] = max(
            float(np.max(np.abs(other / 4 - one / 4), initial=0.0))
            for one, other in _finite_pairs(reference, actual, fill)
        )
    totals = [0.0, 0.0]
    for one, other in _finite_pairs(reference, actual, fill):
        difference = other / 4 - one / 4 if halves else other - one
        for index, each in enumerate((one, difference)):
            totals[index] += float(np.sum((each / largest[index]) ** 2))
    signal, noise = (
        math.log10(total) + 2 * math.log10(scale)
        for total, scale in zip(totals, largest, strict=True)
    )
    return 10 * (signal - noise - (2 * math.log10(4) if halves else 0.0))


def _finite_pairs(
    reference: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], fill: Fill
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    for one, other in _chunks(_real(reference), _real(actual)):
        expected, found = one.astype(np.float64), other.astype(np.float64)
        both = np.isfinite(expected) & np.isfinite(found) & (np.abs(expected) <= fill.far)
        yield expected[both], found[both]


def _real(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Complex numbers as pairs of real ones."""
    if array.dtype.kind != "c":
        return array
    return np.ascontiguousarray(array).view(array.real.dtype)


def _cosine(sums: _Sums) -> float | None:
    norms = math.sqrt(sums.squares) * math.sqrt(sums.actual_squares)
    if not norms or not math.isfinite(norms):
        return None
    return max(-1.0, min(1.0, sums.dot / norms))


def _relative(error: float, scale: float) -> float:
    if not scale:
        return 0.0 if not error else UNBOUNDED
    return _finite(error / scale)


def _finite(number: float) -> float:
    return number if math.isfinite(number) else UNBOUNDED


def agreeing_rows(
    reference: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], top_k: int
) -> tuple[int, int]:
    """Of two float tensors of one shape: how many rows along the last axis agree, of how many.

    A row agrees if a largest value of the reference is among the `top_k` largest of `actual`.  Of
    equal values in `actual` the first counts as the larger, as argmax has it, so that a row of
    equal values agrees only by its position.  Rows with NaN count nowhere, nor do rows of at most
    `top_k` values, which cannot disagree: 0 of 0.
    """
    width = reference.shape[-1] if reference.ndim else 1
    if width <= top_k or not reference.size or reference.dtype.kind == "c":
        return 0, 0
    agreeing = judged = 0
    ones, others = reference.reshape(-1, width), actual.reshape(-1, width)
    step = max(1, CHUNK // width)
    for start in range(0, len(ones), step):
        expected = ones[start : start + step].astype(np.float64)
        found = others[start : start + step].astype(np.float64)
        numbers = ~(np.isnan(expected).any(axis=1) | np.isnan(found).any(axis=1))
        expected, found = expected[numbers], found[numbers]
        largest = expected == expected.max(axis=1, keepdims=True, initial=-np.inf)
        agreeing += int(np.count_nonzero((largest & _among_largest(found, top_k)).any(axis=1)))
        judged += len(expected)
    return agreeing, judged


def _among_largest(rows: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Which values are among the `count` largest of their row; exactly that many are."""
    least = np.partition(rows, -count, axis=1)[:, -count][:, np.newaxis]
    above, equal = rows > least, rows == least
    left = count - np.count_nonzero(above, axis=1)[:, np.newaxis]
    among: np.ndarray[Any, Any] = above | (equal & (np.cumsum(equal, axis=1) <= left))
    return among


def gated(error: OutputError, gate: OutputGate) -> OutputError:
    """`error` with the limits of the output's gate among what it breaches.

    With `instead` the tolerance no longer counts; what cannot be compared at all still does.  The
    reason tells of limits where nothing else is wrong.
    """
    failed = [limit for limit in judged_limits(error, gate) if not limit.passed]
    before = tuple(name for name in error.breached if name == FORM or not gate.replaces_tolerance)
    words = [f"{limit.limit}: {limit.found}" for limit in failed]
    return replace(
        error,
        passed=not (before or failed),
        reason=error.reason if before else "; ".join(words),
        breached=(*before, *(limit.name for limit in failed)),
    )


class RepeatedAnswers:
    """Counts calls whose answers have other bytes than the first, by output.

    `names` are those of the outputs, in the order of the answers.
    """

    def __init__(self, names: Sequence[str], first: Sequence[Data]) -> None:
        self._names = names
        self._first = first
        self._outputs: dict[str, DifferingOutput] = {}
        self.runs = 0
        self.differing_runs = 0

    @property
    def outputs(self) -> tuple[DifferingOutput, ...]:
        """The outputs that differed, in order, each as in the call with most differing values."""
        return tuple(self._outputs[name] for name in self._names if name in self._outputs)

    def repeat(self, call: Callable[[], Sequence[Data]], runs: int) -> None:
        """Compare the answers of `runs` further calls."""
        for _ in range(runs):
            self.add(call())

    def add(self, answers: Sequence[Data]) -> None:
        """Compare the answers of one further call."""
        found = [
            _difference(name, one, other)
            for name, one, other in zip(self._names, self._first, answers, strict=True)
            if not same_bits(one, other)
        ]
        self.runs += 1
        self.differing_runs += bool(found)
        for each in found:
            known = self._outputs.get(each.output, each)
            worst = max(known, each, key=lambda item: item.differing_values)
            errors = [item.max_abs for item in (known, each) if item.max_abs is not None]
            self._outputs[each.output] = replace(worst, max_abs=max(errors, default=None))


def _difference(name: str, one: Data, other: Data) -> DifferingOutput:
    """How two values of one output differ; of sequences and maps only that they do."""
    if not _comparable(one, other):
        return DifferingOutput(output=name, differing_values=1, total_values=1)
    size = one.itemsize
    # Bytes, not values: a NaN is equal to one with the same bits, and 0 is not -0.
    differ = (
        np.frombuffer(one.tobytes(), np.uint8).reshape(-1, size)
        != np.frombuffer(other.tobytes(), np.uint8).reshape(-1, size)
    ).any(axis=1)
    count = int(np.count_nonzero(differ))
    try:
        with np.errstate(all="ignore"):
            errors = np.abs(
                one.reshape(-1)[differ].astype(np.float64)
                - other.reshape(-1)[differ].astype(np.float64)
            )
        finite = errors[np.isfinite(errors)]
    except (TypeError, ValueError):
        finite = np.empty(0)
    largest = float(finite.max()) if finite.size else None
    return DifferingOutput(
        output=name, differing_values=count, total_values=int(one.size), max_abs=largest
    )


def _comparable(one: Any, other: Any) -> bool:
    return (
        isinstance(one, np.ndarray)
        and isinstance(other, np.ndarray)
        and one.dtype == other.dtype
        and one.dtype.kind != "O"
        and one.shape == other.shape
    )
