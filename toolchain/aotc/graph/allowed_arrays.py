"""Arrays held to the values that a profile allows of an input: checked, drawn, and cut to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.graph.values import numpy_dtype
from aotc.spec.allowed_values import EXACT, AllowedValues, Number, value_text
from aotc.spec.payload import Value

Array = np.ndarray[Any, Any]
# How far a bound that is not stated lies from the one that is, where integers are drawn.
_SPAN: Final = 8
# Up to so many values an array is compared with each of them.
_FEW: Final = 8
# Of one input, how many values are tried throughout.
MAX_ENDS: Final = 8


def outside(array: Array, allowed: AllowedValues, sizes: Mapping[str, int]) -> str:
    """The value of `array` that is not allowed in a call of `sizes`, in words; empty: all are.

    It takes a minimum and a maximum over the array, or one comparison with each of the values.  NaN
    is never allowed.  A stated number is compared as the nearest one of the array's own type.
    """
    if not array.size:
        return ""
    if allowed.values:
        return _first_other(array, allowed)
    low, high = allowed.bounds(sizes)
    # What the narrow floats of ml_dtypes warn of for NaN.
    with np.errstate(invalid="ignore"):
        least, most = array.min(), array.max()
    if low is not None and not number_of(least) >= _nearest(low, array.dtype):
        return _found(least, "smallest", array)
    if high is not None and not number_of(most) <= _nearest(high, array.dtype):
        return _found(most, "largest", array)
    return ""


def require_allowed(
    arrays: Mapping[str, Any],
    inputs: Iterable[Value],
    sizes: Mapping[str, int],
    *,
    code: str,
    where: str = "",
) -> None:
    """Raise `code` if an array holds a value that its input excludes; `where` names their file."""
    for value in inputs:
        array = arrays.get(value.name)
        if value.allowed is None or not isinstance(array, np.ndarray):
            continue
        found = outside(array, value.allowed, sizes)
        if found:
            raise AotcError(
                code,
                f"input {value.name!r} has a value outside of those that the profile states",
                where=f"{where}: {value.name}" if where else f"input {value.name}",
                expected=value.allowed.text(sizes),
                found=found,
            )


def cut_to_allowed(array: Any, value: Value, sizes: Mapping[str, int]) -> Any:
    """`array` with the nearest bound, or the first value, for what `value` excludes at `sizes`."""
    allowed = value.allowed
    if allowed is None or not isinstance(array, np.ndarray) or not outside(array, allowed, sizes):
        return array
    if allowed.values:
        first = np.asarray(allowed.values[0]).astype(array.dtype)
        return np.where(_is_known(array, allowed), array, first)
    low, high = (
        None if bound is None else np.asarray(_fitting(bound, array.dtype)).astype(array.dtype)
        for bound in allowed.bounds(sizes)
    )
    with np.errstate(invalid="ignore"):
        least = array if low is None else np.where(array >= low, array, low)
        return least if high is None else np.where(least <= high, least, high)


def draw(
    value: Value,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    near: tuple[Number | None, Number | None],
    rng: np.random.Generator,
) -> Array:
    """Allowed values of the type of `value`, which states some; equally likely.

    A bound that is not stated is that of `near`, or lies close to the other one.  Where the largest
    is a size of the call, one element has it.  Raises AOTC-S032 if no value is allowed at `sizes`.
    """
    allowed, dtype = _stated(value), numpy_dtype(value.dtype)
    if allowed.values:
        chosen = rng.integers(0, len(allowed.values), shape)
        return np.asarray(np.array(allowed.values, dtype=dtype)[chosen], dtype=dtype)
    integer = dtype.kind in "iu"
    low, high = _both_bounds(allowed.bounds(sizes), near, integer)
    low, high = _fitting(low, dtype), _fitting(high, dtype)
    if low > high:
        raise AotcError(
            "AOTC-S032",
            "no value is allowed at these sizes",
            where=f"inputs.{value.name}",
            found=f"{allowed.text(sizes)} allows no value of {value.name}",
        )
    if integer:
        drawn = np.asarray(rng.integers(int(low), int(high), shape, endpoint=True))
    else:
        drawn = np.asarray(rng.uniform(float(low), float(high), shape))
    if isinstance(allowed.max, str) and drawn.size:
        drawn.flat[int(rng.integers(drawn.size))] = high
    return drawn.astype(dtype)


def seen_values(arrays: Sequence[Any], *, private: bool) -> AllowedValues | None:
    """The finite values of `arrays` of one type, as bounds; truth values and text as a list.

    None if there is nothing to say: of complex numbers, and of text that is `private`.
    """
    flat = [np.ravel(array) for array in arrays if isinstance(array, np.ndarray) and array.size]
    if not flat:
        return None
    kind = flat[0].dtype.kind
    if kind == "b":
        return AllowedValues(values=tuple(sorted({int(each) for one in flat for each in one})))
    if kind in "OUT":
        words = sorted({str(each) for one in flat for each in one})
        return None if private else AllowedValues(values=tuple(words[:MAX_ENDS]))
    if kind == "c":
        return None
    if kind not in "iu":
        flat = [one.astype(np.float64) for one in flat]
        flat = [finite for one in flat if (finite := one[np.isfinite(one)]).size]
    if not flat:
        return None
    low, high = (
        number_of(bound)
        for bound in (min(one.min() for one in flat), max(one.max() for one in flat))
    )
    if kind in "iu":
        low, high = max(low, 1 - EXACT), min(high, EXACT - 1)
    return AllowedValues(min=low, max=high)


def ends_of(value: Value, sizes: Mapping[str, int]) -> list[Number | str]:
    """The stated bounds at `sizes`, or the first of the stated values."""
    allowed = _stated(value)
    if allowed.values:
        return list(allowed.values[:MAX_ENDS])
    return [bound for bound in allowed.bounds(sizes) if bound is not None]


def filled(value: Value, shape: tuple[int, ...], number: Number | str) -> Array:
    """An array of the type of `value` that has one value throughout."""
    dtype = numpy_dtype(value.dtype)
    if isinstance(number, str):
        return np.full(shape, number, dtype=object)
    return np.full(shape, _fitting(number, dtype)).astype(dtype)


def _stated(value: Value) -> AllowedValues:
    if value.allowed is None:
        raise LookupError(value.name)
    return value.allowed


def _first_other(array: Array, allowed: AllowedValues) -> str:
    if array.dtype.kind in "OUT":
        others = (value_text(str(text)) for text in array.flat if text not in allowed.values)
        return next(others, "")
    other = array[~_is_known(array, allowed)]
    return _scalar_text(other.flat[0]) if other.size else ""


def _is_known(array: Array, allowed: AllowedValues) -> Any:
    """Where the array has one of the stated values."""
    values = np.array(allowed.values).astype(array.dtype)
    # Which sorts the array, unless it is of integers close to one another.
    if len(values) > _FEW:
        return np.isin(array, values)
    known = np.zeros(array.shape, bool)
    for value in values:
        known |= array == value
    return known


def _scalar_text(scalar: Any) -> str:
    """A scalar as short as its type tells it from others."""
    return "NaN" if scalar != scalar else str(scalar).removesuffix(".0")


def number_of(scalar: Any) -> Number:
    """A scalar of numpy or ml_dtypes as a number of Python, exactly."""
    return int(scalar) if scalar.dtype.kind in "iu" else float(scalar)


def _nearest(bound: Number, dtype: np.dtype[Any]) -> Number:
    """A stated bound as the array's type has it; a size that it cannot hold stays as it is."""
    if dtype.kind in "iu":
        return bound
    with np.errstate(over="ignore"):
        return float(np.asarray(bound).astype(dtype))


def _fitting(bound: Number, dtype: np.dtype[Any]) -> Number:
    """The same, within what the type can hold."""
    if dtype.kind not in "iu":
        return _nearest(bound, dtype)
    limits = np.iinfo(dtype)
    return min(max(int(bound), int(limits.min)), int(limits.max))


def _both_bounds(
    stated: tuple[Number | None, Number | None],
    near: tuple[Number | None, Number | None],
    integer: bool,
) -> tuple[Number, Number]:
    low, high = stated
    if low is None and high is not None:
        below = 1 if integer and high >= 1 else high - (_SPAN if integer else max(1.0, abs(high)))
        low = below if near[0] is None else near[0]
        return min(low, high), high
    if low is not None and high is None:
        above = low + (_SPAN if integer else max(1.0, abs(low)))
        high = above if near[1] is None else near[1]
        return low, max(low, high)
    return low or 0, high or 0


def _found(scalar: Any, which: str, array: Array) -> str:
    text = _scalar_text(scalar)
    return text if array.size == 1 else f"{text}, the {which} of {array.size}"
