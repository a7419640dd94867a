"""Numbers that depend on the sizes of a model's inputs, as JSON that a hint can hold.

An extent is a whole number; `[INPUT, AXIS]`, the size of an axis of a graph input; or one of
`{"sum": […]}`, `{"product": […]}`, `{"minimum": […]}` of extents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aotc.contract.codec.parsing import Json

Extent = Json
Shape = tuple[Extent | None, ...]
"""Sizes of a tensor's axes; None where one is unknown."""


def total(*parts: Extent | None) -> Extent | None:
    """Their sum; None where one is unknown."""
    return _combined("sum", parts)


def product(*parts: Extent | None) -> Extent | None:
    """Their product; None where one is unknown."""
    return _combined("product", parts)


def minimum(*parts: Extent | None) -> Extent | None:
    """The smallest of those that are known; None where none is."""
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    return _combined("least", known) if known else None


def difference(one: Extent | None, other: Extent | None) -> Extent | None:
    """`one` without `other`; None where one of them is unknown."""
    return total(one, product(-1, other))


def _combined(kind: str, parts: Sequence[Extent | None]) -> Extent | None:
    if any(part is None for part in parts):
        return None
    if all(isinstance(part, int) for part in parts):
        return _evaluated(kind, [int(part) for part in parts if isinstance(part, int)])
    return {kind: list(parts)}


def _evaluated(kind: str, parts: Sequence[int]) -> int:
    if kind == "sum":
        return sum(parts)
    return math.prod(parts) if kind == "product" else min(parts)


def extent_value(extent: Extent, shapes: Mapping[str, Sequence[int]]) -> int | None:
    """The number at `shapes` of the graph inputs; None where they lack one that it needs."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, list):
        name, axis = extent
        shape = shapes.get(name, ())
        return shape[axis] if axis < len(shape) else None
    (kind, parts), *_ = extent.items()
    values = [extent_value(part, shapes) for part in parts]
    known = [value for value in values if value is not None]
    return _evaluated(kind, known) if len(known) == len(values) else None
