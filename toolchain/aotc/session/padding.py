"""Pads inputs up to the sizes that a variant accepts, and crops its outputs accordingly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aotc.graph.values import Data
from aotc.spec.payload import Value
from aotc.spec.shapes import Crop, Padding, PadSpec

# For how many pairs of sizes the plan is kept.
_MAX_PLANS = 4096
_Sizes = tuple[tuple[str, int], ...]


class Padded(NamedTuple):
    """Inputs at the wanted sizes; the elements of all tensors as given, and those added."""

    inputs: dict[str, Data]
    given: int
    added: int


class Fill(NamedTuple):
    """How one input is padded: its new shape, and where its own elements go."""

    name: str
    shape: tuple[int, ...]
    slices: tuple[slice, ...]
    value: Any


class Padder:
    """Pads and crops for one set of inputs and outputs; thread-safe."""

    def __init__(self, inputs: Sequence[Value], padding: Padding | None) -> None:
        padding = padding or Padding()
        self._inputs = tuple(value for value in inputs if value.kind == "tensor")
        self._specs = {
            value.name: padding.inputs.get(value.name, PadSpec()) for value in self._inputs
        }
        self._fills: dict[tuple[_Sizes, _Sizes], tuple[Fill, ...]] = {}
        self._crops: dict[str, list[Crop]] = {}
        for crop in padding.crops:
            self._crops.setdefault(crop.output, []).append(crop)

    def pad(
        self, inputs: Mapping[str, Data], sizes: Mapping[str, int], wanted: Mapping[str, int]
    ) -> Padded:
        """`inputs` of `sizes` padded to `wanted`; both are sizes by dim, derived dims included."""
        result = dict(inputs)
        added = 0
        for name, shape, slices, value in self.fills(sizes, wanted):
            array: Any = result.get(name)
            if array is not None:
                # A fixed-width text type would truncate the pad value.
                dtype = object if array.dtype.kind in "UT" else array.dtype
                filled = np.empty(shape, dtype)
                filled.fill(value)
                filled[slices] = array
                result[name] = filled
                added += filled.size - array.size
        return Padded(result, self.elements(inputs), added)

    def fills(self, sizes: Mapping[str, int], wanted: Mapping[str, int]) -> tuple[Fill, ...]:
        """How each input that changes is padded from `sizes` to `wanted`."""
        key = (tuple(sizes.items()), tuple(wanted.items()))
        fills = self._fills.get(key)
        if fills is None:
            if len(self._fills) >= _MAX_PLANS:
                self._fills.clear()
            fills = self._fills[key] = tuple(self._plan_fills(sizes, wanted))
        return fills

    def _plan_fills(self, sizes: Mapping[str, int], wanted: Mapping[str, int]) -> Iterator[Fill]:
        for value in self._inputs:
            shape: list[int] = []
            slices: list[slice] = []
            right = self._specs[value.name].side == "right"
            for dim in value.shape or ():
                size = sizes[dim] if isinstance(dim, str) else dim
                full = wanted[dim] if isinstance(dim, str) else dim
                shape.append(full)
                slices.append(slice(size) if right else slice(full - size, full))
            if any(sizes[dim] != wanted[dim] for dim in value.shape or () if isinstance(dim, str)):
                spec = self._specs[value.name]
                yield Fill(value.name, tuple(shape), tuple(slices), spec.value)

    def elements(self, inputs: Mapping[str, Data]) -> int:
        """The number of elements of all tensors among `inputs`."""
        return sum(getattr(inputs.get(value.name), "size", 0) for value in self._inputs)

    def crop(
        self, names: Sequence[str], outputs: Sequence[Data], sizes: Mapping[str, int]
    ) -> list[Data]:
        """`outputs` without what padding added for unpadded `sizes`; cropped ones are copies."""
        result = list(outputs)
        for index, name in enumerate(names):
            array: Any = outputs[index]
            slices = self.crop_slices(name, array.shape, sizes) if name in self._crops else None
            if slices is not None:
                result[index] = np.ascontiguousarray(array[slices])
        return result

    def crop_slices(
        self, name: str, shape: Sequence[int], sizes: Mapping[str, int]
    ) -> tuple[slice, ...] | None:
        """The part of an output of `shape` that unpadded `sizes` have; None if that is all."""
        slices = None
        for crop in self._crops.get(name, ()):
            size, full = crop.size(sizes), shape[crop.axis]
            if 0 <= size < full:
                slices = slices or [slice(None)] * len(shape)
                right = crop.side == "right"
                slices[crop.axis] = slice(size) if right else slice(full - size, full)
        return None if slices is None else tuple(slices)
