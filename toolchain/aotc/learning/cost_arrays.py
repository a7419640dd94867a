"""A cost table as arrays: exact at the measured sizes, linear between them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aotc.learning.cost_table import CostTable

Floats = npt.NDArray[np.floating[Any]]


class Costs:
    """Seconds by the sizes of one or two dims."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self.dims = table.dims
        self.axes = tuple(np.asarray(table.sizes[dim], float) for dim in table.dims)
        shape = tuple(len(axis) for axis in self.axes)
        self.static: Floats = np.asarray(table.static, float).reshape(shape)
        at = table.dynamic_sizes_or_all()
        self.dynamic_axes = tuple(np.asarray(at[dim], float) for dim in table.dims)
        self.dynamic: Floats | None = None
        if table.dynamic:
            shape = tuple(len(axis) for axis in self.dynamic_axes)
            self.dynamic = np.asarray(table.dynamic, float).reshape(shape)

    def within(self, low: Sequence[int], high: Sequence[int]) -> Costs:
        """The same costs with only the static sizes that calls from `low` to `high` may need.

        For each dim these range from the smallest size that holds the smallest call to the
        smallest one that holds the largest call.
        """
        found = copy.copy(self)
        spans = [
            slice(int(np.searchsorted(axis, smallest)), int(np.searchsorted(axis, largest)) + 1)
            for axis, smallest, largest in zip(self.axes, low, high, strict=True)
        ]
        found.axes = tuple(axis[span] for axis, span in zip(self.axes, spans, strict=True))
        found.static = self.static[tuple(spans)]
        return found

    def dynamic_seconds(self, sizes: Mapping[str, int]) -> float:
        """Seconds of the dynamic graph at `sizes`, linear (in two dims bilinear) between measured.

        Below the smallest and above the largest measured size, the cost of that size is used.
        """
        if self.dynamic is None:
            raise ValueError("the table has no dynamic costs")
        values = self.dynamic
        for dim, axis in zip(self.dims, self.dynamic_axes, strict=True):
            values = _between(values, axis, float(sizes[dim]))
        return float(values)

    def indices(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """For each dim, the index of the smallest measured size that holds `sizes`."""
        return tuple(
            int(np.searchsorted(axis, sizes[dim]))
            for dim, axis in zip(self.dims, self.axes, strict=True)
        )


def _between(values: Floats, axis: Floats, size: float) -> Floats:
    """`values` interpolated at `size` along their first axis."""
    size = min(max(size, axis[0]), axis[-1])
    upper = int(np.searchsorted(axis, size))
    if axis[upper] == size:
        return np.asarray(values[upper])
    share = (size - axis[upper - 1]) / (axis[upper] - axis[upper - 1])
    return np.asarray(values[upper - 1] * (1 - share) + values[upper] * share)
