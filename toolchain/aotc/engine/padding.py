"""Pad inputs up to the sizes that a variant takes, and crop what padding added to its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aotc.contract.manifest import Value
from aotc.contract.padding import Crop, Padding, PadSpec
from aotc.engine.values import Data


class Padded(NamedTuple):
    """Inputs at the wanted sizes; elements of all tensors as given, and those added."""

    inputs: dict[str, Data]
    given: int
    added: int


class Padder:
    """Padding and cropping for one set of inputs and outputs; safe from many threads."""

    def __init__(self, inputs: Sequence[Value], padding: Padding | None) -> None:
        padding = padding or Padding()
        self._plans = tuple(
            (
                value.name,
                padding.inputs.get(value.name, PadSpec()),
                tuple((a, dim) for a, dim in enumerate(value.shape or ()) if isinstance(dim, str)),
            )
            for value in inputs
            if value.kind == "tensor"
        )
        self._crops: dict[str, list[Crop]] = {}
        for crop in padding.crops:
            self._crops.setdefault(crop.output, []).append(crop)

    def pad(
        self, inputs: Mapping[str, Data], sizes: Mapping[str, int], wanted: Mapping[str, int]
    ) -> Padded:
        """`inputs` of `sizes` filled up to `wanted`, both by dim, related dims included."""
        result = dict(inputs)
        given = added = 0
        for name, spec, named in self._plans:
            array: Any = result.get(name)
            if array is None:
                continue
            given += array.size
            if all(sizes[dim] == wanted[dim] for _, dim in named):
                continue
            shape, place = list(array.shape), [slice(None)] * array.ndim
            for axis, dim in named:
                size, full = sizes[dim], wanted[dim]
                if size != full:
                    shape[axis] = full
                    place[axis] = slice(size) if spec.side == "right" else slice(full - size, full)
            filled = np.full(shape, spec.value, dtype=array.dtype)
            filled[tuple(place)] = array
            result[name] = filled
            added += filled.size - array.size
        return Padded(result, given, added)

    def elements(self, inputs: Mapping[str, Data]) -> int:
        """Elements of all tensors among `inputs`."""
        return sum(getattr(inputs[name], "size", 0) for name, _, _ in self._plans)

    def crop(
        self, names: Sequence[str], outputs: Sequence[Data], sizes: Mapping[str, int]
    ) -> list[Data]:
        """`outputs` without what padding added to calls of unpadded `sizes`; contiguous copies."""
        result = list(outputs)
        for index, name in enumerate(names):
            array: Any = outputs[index]
            place = None
            for crop in self._crops.get(name, ()):
                size, full = crop.size(sizes), array.shape[crop.axis]
                if size < full:
                    place = place or [slice(None)] * array.ndim
                    right = crop.side == "right"
                    place[crop.axis] = slice(size) if right else slice(full - size, full)
            if place is not None:
                result[index] = np.ascontiguousarray(array[tuple(place)])
        return result
