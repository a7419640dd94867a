"""Inputs of wanted sizes, to run a model before its first call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from aotc.contract.manifest.document import Manifest
from aotc.engine import values
from aotc.runtime import arrays

# Larger inputs are not generated for a warm-up.
_MAX_ELEMENTS: Final = 1 << 27


def inputs_at(
    manifest: Manifest, sizes: Mapping[str, int], payload: Path
) -> dict[str, values.Data] | None:
    """Inputs of `sizes`: a resized fixture, or zeros; None if neither is possible."""
    for value in manifest.inputs:
        shape = [
            size if isinstance(size, int) else sizes.get(size, 1) for size in value.shape or ()
        ]
        if math.prod(shape) > _MAX_ELEMENTS or min(shape, default=1) < 0:
            return None
    if manifest.fixtures:
        given = arrays.read_fixture(payload, manifest.fixtures[0])
        return arrays.resize(given, manifest.inputs, sizes)
    zeros: dict[str, values.Data] = {}
    for value in manifest.inputs:
        if value.kind != "tensor" or value.shape is None or value.dtype == "string":
            return None
        shape = [size if isinstance(size, int) else sizes.get(size, 1) for size in value.shape]
        zeros[value.name] = np.zeros(shape, values.numpy_dtype(value.dtype))
    return zeros
