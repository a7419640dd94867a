"""How many of an output's answers agree: rows by their largest values, labels by equality."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# How many elements are looked at a time: 2 MiB as float64.
_CHUNK: Final = 1 << 18


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
    step = max(1, _CHUNK // width)
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
