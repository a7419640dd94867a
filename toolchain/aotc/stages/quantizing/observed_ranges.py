"""Ranges of activations, observed by running the source on calibration data, and kept in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from aotc.contract.codec.parsing import Json
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine import values
from aotc.engine.session import create_session, run

Range = tuple[float, float]

# Activations of one run that are held at once, by their sizes at the largest shape.
_HELD_BYTES: Final = 1 << 29
_UNKNOWN_BYTES: Final = 1 << 22
_BINS: Final = {"entropy": 128, "percentile": 2048}
# Bins of the entropy method's quantized distribution.
_QUANTIZED_BINS: Final = 128


def observed_ranges(
    request: Json, names: Sequence[str], sizes: Mapping[str, int]
) -> dict[str, Range | None]:
    """In the worker: the range of each activation of the source among `names`.

    None if one is not finite.  `sizes` are bytes by name.  They are computed once, and read from
    a file in the request's folder then.  Raises R005 and R008 if the source does not run.
    """
    source = onnx.load(request["source"], load_external_data=False)
    made = {name for node in source.graph.node for name in node.output}
    made |= {value.name for value in source.graph.input}
    wanted = [name for name in names if name in made]
    key = [wanted, request["method"], request["percentile"], request["samples"]]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    kept = Path(request["folder"]) / f"ranges-{digest}.json"
    if not kept.exists():
        found = _observed(source, wanted, sizes, request)
        written = Path(f"ranges-{digest}.json")
        written.write_text(json.dumps(found))
        kept.parent.mkdir(parents=True, exist_ok=True)
        written.replace(kept)
    read = json.loads(kept.read_text())
    return {name: tuple(value) if value is not None else None for name, value in read.items()}


def _observed(
    source: onnx.ModelProto, names: Sequence[str], sizes: Mapping[str, int], request: Json
) -> dict[str, Range | None]:
    given = {value.name for value in source.graph.input}
    outputs = {value.name for value in source.graph.output}
    computed = [name for name in names if name not in given]
    source.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in computed if name not in outputs
    )
    session = create_session(
        source.SerializeToString(),
        SessionSpec(optimization="disable"),
        providers=[CPU],
        weights_folder=Path(request["weights"]),
    )
    dtypes = {arg.name: values.ort_type_to_value(arg).dtype for arg in session.get_inputs()}
    samples = [
        {name: values.load(Path(path)) for name, path in sample["inputs"].items()}
        for sample in request["samples"]
    ]
    collect = _Ranges(request["method"], request["percentile"])
    for sample in samples:
        typed = {name: _as(dtypes.get(name), value) for name, value in sample.items()}
        collect.add({name: typed[name] for name in names if name in given and name in typed})
        for group in _groups(computed, sizes):
            found = run(session, typed, group)
            collect.add(dict(zip(group, found, strict=True)))
    return collect.ranges(names)


def _as(dtype: str | None, value: Any) -> Any:
    """A sample of the model's own type as the type that the profile gives the input."""
    if dtype is None or not hasattr(value, "astype") or dtype not in ("float16", "bfloat16"):
        return value
    return value.astype(values.numpy_dtype(dtype))


def _groups(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    group: list[str] = []
    held = 0
    for name in names:
        size = sizes.get(name, _UNKNOWN_BYTES)
        if group and held + size > _HELD_BYTES:
            yield group
            group, held = [], 0
        group.append(name)
        held += size
    if group:
        yield group


class _Ranges:
    """The ranges of values that are given sample by sample, by one of the methods."""

    def __init__(self, method: str, percentile: float) -> None:
        self._method = method
        self._percentile = percentile
        self._low: dict[str, float] = {}
        self._high: dict[str, float] = {}
        self._wild: set[str] = set()
        self._histograms: dict[str, Any] = {}

    def add(self, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            if not isinstance(value, np.ndarray) or not value.size:
                continue
            exact = value.astype(np.float32, copy=False)
            low, high = float(exact.min()), float(exact.max())
            if not np.isfinite((low, high)).all():
                self._wild.add(name)
                continue
            self._low[name] = min(low, self._low.get(name, low))
            self._high[name] = max(high, self._high.get(name, high))
            if self._method != "minmax":
                self._histogram(name).collect({name: [exact]})

    def ranges(self, names: Sequence[str]) -> dict[str, Range | None]:
        """By name; without names that no run computed."""
        found: dict[str, Range | None] = {}
        for name in names:
            if name in self._wild:
                found[name] = None
            elif name in self._low:
                found[name] = self._range(name)
        return found

    def _range(self, name: str) -> Range:
        low, high = self._low[name], self._high[name]
        if self._method == "minmax" or low == high:
            return low, high
        result = self._histogram(name).compute_collection_result()
        least, largest = result[name].range_value
        return float(least), float(largest)

    def _histogram(self, name: str) -> Any:
        from onnxruntime.quantization.calibrate import HistogramCollector

        if name not in self._histograms:
            self._histograms[name] = HistogramCollector(
                method=self._method,
                symmetric=False,
                num_bins=_BINS[self._method],
                num_quantized_bins=_QUANTIZED_BINS,
                percentile=self._percentile,
                scenario="same",
            )
        return self._histograms[name]
