"""Sketches of values: small enough for a document, and judged as the values themselves are.

A tensor of more than `_WHOLE` elements is its values at fixed positions, spread evenly, and the
least and the greatest finite value of each of `_BLOCKS` blocks.  Two tensors whose values all
differ by at most d have sketches that differ by at most d, so that what breaches a tolerance in a
sketch breaches it in the tensor; a single value that moved may be missed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from aotc.graph import values
from aotc.graph.values import Data
from aotc.session.parity import compare, same_bits
from aotc.spec.answers import KeptValue
from aotc.spec.codec import Json
from aotc.spec.evidence import UNBOUNDED, OutputError
from aotc.spec.precision import Tolerance

_WHOLE: Final = 512
_SAMPLES: Final = 256
_BLOCKS: Final = 128
# Bytes of what is no tensor of numbers.
_TEXT_BYTES: Final = 4096
_MAX_ITEMS: Final = 16
# Multiples of it spread over an interval more evenly than any others.
_GOLDEN: Final = (5**0.5 - 1) / 2


def sketch(value: Data) -> Json:
    """The sketch of a value as JSON; None for text and maps that are too large."""
    found = _sketched(value)
    return None if found is _TOO_LARGE else values.to_json(found)


_TOO_LARGE: Final = object()


def _sketched(value: Data) -> Data:
    if isinstance(value, np.ndarray) and values.dtype_name(value.dtype) != "string":
        return _few(value) if value.size > _WHOLE else value
    if isinstance(value, list | tuple) and len(value) <= _MAX_ITEMS:
        items = [_sketched(item) for item in value]
        return _TOO_LARGE if any(item is _TOO_LARGE for item in items) else items
    return value if values.nbytes(value) <= _TEXT_BYTES else _TOO_LARGE


def _few(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = _ordered(array.reshape(-1))
    at = np.floor(np.arange(1, _SAMPLES + 1) * _GOLDEN % 1 * flat.size).astype(np.int64)
    starts = np.linspace(0, flat.size, _BLOCKS, endpoint=False).astype(np.int64)
    if flat.dtype.kind == "f":
        # One value that is not finite hides no other: where it is, samples and digests tell.
        finite = np.where(np.isfinite(flat), flat, np.nan)
        ends = np.fmin.reduceat(finite, starts), np.fmax.reduceat(finite, starts)
    else:
        ends = np.minimum.reduceat(flat, starts), np.maximum.reduceat(flat, starts)
    return np.concatenate([flat[at], *ends])


def _ordered(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers that have an order in numpy: complex ones as pairs, narrow ones in a wider type."""
    if flat.dtype.kind == "c":
        return flat.view(flat.real.dtype)
    if flat.dtype.isbuiltin == 1:
        return flat
    return flat.astype(np.int16 if is_exact(flat) else np.float32)


def judge_sketch(before: KeptValue, now: Data, tolerance: Tolerance) -> OutputError | None:
    """`now` against the sketch of an earlier answer, of another digest; None if nothing is known.

    Raises any of `values.MALFORMED` for what is no sketch.
    """
    if before.value != values.describe(now):
        return unmeasured(before.name, f"expected {before.value}, found {values.describe(now)}")
    found = _sketched(now)
    if before.sketch is None or found is _TOO_LARGE:
        return None
    expected = values.from_json(before.sketch)
    error = compare(expected, found, tolerance, before.name)
    if error.passed and found is not now and is_exact(now) and same_bits(expected, found):
        # Their digests differ, and such values must be equal.
        return unmeasured(before.name, "values differ that are not in the sketch")
    return error


def unmeasured(name: str, reason: str) -> OutputError:
    """The error of an output that differs in a way that is no number."""
    return OutputError(
        output=name, max_abs=UNBOUNDED, max_rel=UNBOUNDED, passed=False, reason=reason
    )


def is_exact(value: Data) -> bool:
    """Whether a value is a tensor that may not differ a little: integers, booleans, text."""
    exact = ("int", "uint", "bool", "string")
    return isinstance(value, np.ndarray) and values.dtype_name(value.dtype).startswith(exact)
