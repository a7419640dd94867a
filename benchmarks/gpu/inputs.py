"""Inputs of an exported network at given sizes, as numpy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.cases import Sizes
from benchmarks.networks.models import input_shapes

# Below the vocabulary of every network, small ones too.
_IDS = 60
Inputs = dict[str, npt.NDArray[Any]]


def inputs_at(path: Path, sizes: Sizes, seed: int = 0) -> Inputs:
    """Normal floats, small ids, and masks whose rows end with padding.

    A mask of a past and new tokens is full, as are masks of a sequence of one.
    """
    rng = np.random.default_rng(seed)
    described = input_shapes(path)
    found: Inputs = {}
    for name, (dims, dtype) in described.items():
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in dims]
        if dtype.startswith("float"):
            found[name] = rng.standard_normal(shape).astype(dtype)
        elif "mask" in name:
            found[name] = np.ones(shape, dtype)
            if len(described) == 2:
                lengths = rng.integers(max(shape[1] // 2, 1), shape[1] + 1, shape[0])
                # One row fills the sequence, as in a batch that was padded to its longest.
                lengths[0] = shape[1]
                found[name] = (np.arange(shape[1]) < lengths[:, None]).astype(dtype)
        else:
            found[name] = rng.integers(0, _IDS, shape).astype(dtype)
    return found


def as_taken(model: Any, inputs: Inputs) -> Inputs:
    """The inputs in the types that a loaded artifact takes."""
    types = {value.name: value.dtype for value in model.inputs}
    return {name: array.astype(types[name], copy=False) for name, array in inputs.items()}
