"""Inputs of any sizes made of samples of real data, by repeating and cutting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aotc.contract.manifest.interface import Value
from aotc.probing.inputs.generated_fixtures import shape_of

Sample = Mapping[str, Any]


def tiled(
    samples: Sequence[Sample], inputs: Sequence[Value], sizes: Mapping[str, int], first: int = 0
) -> dict[str, Any]:
    """Inputs at `sizes`, made of `samples` from number `first` on, again from the start after all.

    A free first axis holds one sample after another, the same ones for every input.  Along other
    axes a sample is cut, or repeated from its start.  An axis without elements becomes zeros.
    What is no tensor is that of the first sample.
    """
    ordered = [samples[(first + number) % len(samples)] for number in range(len(samples))]
    return {
        value.name: _tensor([each[value.name] for each in ordered], value, sizes)
        for value in inputs
    }


def _tensor(arrays: Sequence[Any], value: Value, sizes: Mapping[str, int]) -> Any:
    if value.kind != "tensor" or not isinstance(arrays[0], np.ndarray):
        return arrays[0]
    shape = shape_of(value, sizes) if value.shape is not None else arrays[0].shape
    free = bool(shape) and (value.shape is None or isinstance(value.shape[0], str))
    if not free:
        return _fitted(arrays[0], shape)
    rows: list[np.ndarray[Any, Any]] = []
    count = 0
    while count < shape[0]:
        array = arrays[len(rows) % len(arrays)]
        taken = min(shape[0] - count, max(array.shape[0], 1))
        rows.append(_fitted(array, (taken, *shape[1:])))
        count += taken
    return np.concatenate(rows) if rows else _fitted(arrays[0], shape)


def _fitted(array: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if 0 in array.shape:
        return np.zeros(shape, array.dtype)
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis=axis)
    return array
