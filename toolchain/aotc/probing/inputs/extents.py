"""Numbers that depend on the sizes of a model's inputs, as JSON inside a hint.

An extent is an integer; `[INPUT, AXIS]`, the size of one axis of a graph input; or one of
`{"sum": […]}`, `{"product": […]}` and `{"minimum": […]}` of extents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aotc.contract.codec.parsing import Json

Extent = Json
Shape = tuple[Extent | None, ...]
"""Sizes of a tensor's axes; None for an unknown size."""


def total(*parts: Extent | None) -> Extent | None:
    """The sum of `parts`; None if one of them is unknown."""
    return _combined("sum", parts)


def product(*parts: Extent | None) -> Extent | None:
    """The product of `parts`; None if one of them is unknown."""
    return _combined("product", parts)


def minimum(*parts: Extent | None) -> Extent | None:
    """The smallest of the known `parts`; None if all are unknown."""
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    return _combined("minimum", known) if known else None


def difference(one: Extent | None, other: Extent | None) -> Extent | None:
    """`one` minus `other`; None if either is unknown."""
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
    """The value of `extent` at these `shapes` of the graph inputs; None if they lack an axis."""
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
