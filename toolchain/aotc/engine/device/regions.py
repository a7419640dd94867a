"""Which rows of bytes make up a region of an array in C order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Rows(NamedTuple):
    """Equally long rows of bytes, at equal distances in each of two arrays."""

    width: int
    height: int
    target_pitch: int
    source_pitch: int


class RowCopy(NamedTuple):
    """Rows to copy, and where the first begins in each array, in bytes."""

    target: int
    source: int
    rows: Rows


def row_copies(
    region: Sequence[int],
    target: Sequence[int],
    source: Sequence[int],
    target_start: Sequence[int],
    source_start: Sequence[int],
    item_bytes: int,
) -> Iterator[RowCopy]:
    """The copies that move `region` from an array of shape `source` to one of shape `target`.

    The starts are the indices of its first element in each; all have the same rank.
    """
    if 0 in region:
        return
    rank = len(region)
    partial = [axis for axis in range(rank) if not region[axis] == target[axis] == source[axis]]
    # Within a row all axes behind `inner` are complete; rows are uniform from `outer` to `inner`.
    inner = partial[-1] if partial else 0
    others = [axis for axis in partial if 0 < axis < inner]
    outer = others[-1] if others else 0
    target_strides, source_strides = _strides(target, item_bytes), _strides(source, item_bytes)
    rows = Rows(
        width=math.prod(region[inner:]) * item_bytes,
        height=math.prod(region[outer:inner]),
        target_pitch=math.prod(target[inner:]) * item_bytes,
        source_pitch=math.prod(source[inner:]) * item_bytes,
    )
    for index in itertools.product(*(range(size) for size in region[:outer])):
        at = (*index, *(0 for _ in range(rank - outer)))
        yield RowCopy(
            _offset(at, target_start, target_strides),
            _offset(at, source_start, source_strides),
            rows,
        )


def _strides(shape: Sequence[int], item_bytes: int) -> list[int]:
    return [math.prod(shape[axis + 1 :]) * item_bytes for axis in range(len(shape))]


def _offset(index: Sequence[int], start: Sequence[int], strides: Sequence[int]) -> int:
    return sum((i + s) * stride for i, s, stride in zip(index, start, strides, strict=True))
