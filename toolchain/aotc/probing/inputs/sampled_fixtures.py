"""Fixtures with values of the user's samples: what ranges were observed on is judged on such.

A variant whose ranges were observed saturates outside of them, so that its answers to values drawn
from anywhere say nothing.  Values that are drawn stay within the range of the samples; at all sizes
but the smallest and the optimal ones, the samples themselves are repeated.  Fixtures with these are
the user's, and are not shipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.engine import values
from aotc.probing.inputs.fixture_plan import SAMPLED, FixtureInputs
from aotc.probing.inputs.generated_fixtures import Hints

Inputs = Mapping[str, Any]

# Hints that the values of a sample fulfil, whatever its size.
_FREE: Final = frozenset({"", "positive", "uniform"})
_DRAWN: Final = ("opt", "min")


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


def with_sampled(
    fixtures: Sequence[FixtureInputs], samples: Sequence[Inputs], inputs: Sequence[Value]
) -> list[FixtureInputs]:
    """`fixtures` with values of `samples` in generated ones, and one more at the optimal sizes."""
    if not samples:
        return list(fixtures)
    found: list[FixtureInputs] = []
    for item in fixtures:
        if item.is_users:
            found.append(item)
            continue
        if item.name in _DRAWN:
            found.append(item)
        if item.name != "min":
            found.append(_sampled(item, samples, inputs))
    return found


def _sampled(
    item: FixtureInputs, samples: Sequence[Inputs], inputs: Sequence[Value]
) -> FixtureInputs:
    changed = dict(item.inputs)
    for value in inputs:
        drawn = changed.get(value.name)
        # Values of shapes and indices depend on the size.
        if _is_float(value) and isinstance(drawn, np.ndarray):
            arrays = [sample[value.name] for sample in samples]
            changed[value.name] = _repeated(arrays, drawn, value)
    return FixtureInputs(f"{item.name}{SAMPLED}", changed, item.sizes)


def _repeated(arrays: Sequence[Any], drawn: Any, value: Value) -> Any:
    """Values of samples in the shape of `drawn`, repeated along every axis as far as necessary."""
    fitting = [array for array in arrays if np.ndim(array) == drawn.ndim and np.size(array)]
    if not fitting or not drawn.size:
        return drawn
    if drawn.ndim == 0 or (value.shape and isinstance(value.shape[0], int)):
        rows = fitting[0]
    else:
        taken: list[Any] = []
        count = 0
        shape = fitting[0].shape[1:]
        alike = [array for array in fitting if array.shape[1:] == shape]
        while count < drawn.shape[0]:
            taken.append(alike[len(taken) % len(alike)])
            count += len(taken[-1])
        rows = np.concatenate(taken)
    for axis, size in enumerate(drawn.shape):
        rows = np.take(rows, np.arange(size) % rows.shape[axis], axis)
    return np.ascontiguousarray(rows, dtype=drawn.dtype).reshape(drawn.shape)


def _is_float(value: Value) -> bool:
    return value.kind == "tensor" and value.dtype in ("float16", "float32", "float64")
