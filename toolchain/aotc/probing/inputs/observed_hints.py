"""Hints of inputs that follow from samples of the user's: what is drawn stays within their range.

A quantized model whose ranges were observed saturates outside of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.engine import values
from aotc.probing.inputs.generated_fixtures import Hints

Inputs = Mapping[str, Any]

# Hints that the values of a sample fulfil, whatever its size.
_FREE: Final = frozenset({"", "positive", "uniform"})


def read_inputs(item: Json) -> dict[str, Any]:
    """The values of one sample, by input, from their files."""
    return {name: values.load(Path(path)) for name, path in item["inputs"].items()}


def observed_hints(samples: Sequence[Inputs], inputs: Sequence[Value], hints: Hints) -> Hints:
    """`hints` with the range of the samples for float inputs whose values were free."""
    found: dict[str, Mapping[str, Json]] = dict(hints)
    for value in inputs:
        if not _is_float(value) or hints.get(value.name, {}).get("kind", "") not in _FREE:
            continue
        arrays = [sample[value.name] for sample in samples if np.size(sample[value.name])]
        if arrays:
            low = min(float(array.min()) for array in arrays)
            high = max(float(array.max()) for array in arrays)
            found[value.name] = {"kind": "uniform", "low": low, "high": high}
    return found


def _is_float(value: Value) -> bool:
    return value.kind == "tensor" and value.dtype in ("float16", "float32", "float64")
