"""Ranges of activations, observed by running the source on calibration data, and kept in a file."""

from __future__ import annotations

import hashlib
import json
import math
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
from aotc.graphs.shown_values import groups_within
from aotc.passes.quantize.observed import Observed
from aotc.stages.quantizing.histograms import Histogram, Range

# Activations of one run that are held at once: bytes, or their number before they are known.
_HELD_BYTES: Final = 1 << 29
_FIRST_COUNT: Final = 64


def observed_ranges(request: Json, names: Sequence[str]) -> dict[str, Observed]:
    """In the worker: the range and the shape of each activation of the source among `names`.

    They are computed once, and read from a file in the request's folder then.  Activations that no
    sample reaches are left out.  Raises R005 and R008 if the source does not run.
    """
    source = onnx.load(request["source"], load_external_data=False)
    made = {name for node in source.graph.node for name in node.output}
    made |= {value.name for value in source.graph.input}
    wanted = [name for name in names if name in made]
    key = [wanted, request["method"], request["percentile"], request["samples"]]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    kept = Path(request["folder"]) / f"ranges-{digest}.json"
    if not kept.exists():
        found = _observed(source, wanted, request)
        written = Path(f"ranges-{digest}.json")
        written.write_text(json.dumps({name: [e.bounds, e.shape] for name, e in found.items()}))
        kept.parent.mkdir(parents=True, exist_ok=True)
        written.replace(kept)
    read = json.loads(kept.read_text())
    return {
        name: Observed(None if bounds is None else (bounds[0], bounds[1]), tuple(shape))
        for name, (bounds, shape) in read.items()
    }


def _observed(source: onnx.ModelProto, names: Sequence[str], request: Json) -> dict[str, Observed]:
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
    collect = _Ranges()

    def each_group(names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Activations among `names`, as many as are held at once, of one sample after another."""
        for sample in request["samples"]:
            typed = {
                name: _as(dtypes.get(name), values.load(Path(path)))
                for name, path in sample["inputs"].items()
            }
            yield {name: typed[name] for name in names if name in given and name in typed}
            wanted = [name for name in names if name not in given]
            for group in groups_within(wanted, collect.held_bytes, _HELD_BYTES):
                yield dict(zip(group, run(session, typed, group), strict=True))

    for found in each_group(names):
        collect.add(found)
    if request["method"] != "minmax":
        # Ranges are known first, so that a histogram has as many bins whatever they are.
        histograms = {
            name: Histogram(request["method"], bounds)
            for name, bounds in collect.bounds.items()
            if bounds[0] < bounds[1]
        }
        for found in each_group([name for name in names if name in histograms]):
            for name, value in found.items():
                histograms[name].add(value)
        for name, histogram in histograms.items():
            collect.bounds[name] = histogram.range(request["percentile"])
    return collect.observed(names)


def _as(dtype: str | None, value: Any) -> Any:
    """A sample of the model's own type as the type that the profile gives the input."""
    if dtype is None or not hasattr(value, "astype") or dtype not in ("float16", "bfloat16"):
        return value
    return value.astype(values.numpy_dtype(dtype))


class _Ranges:
    """The smallest and the largest of values that are given sample by sample, and their shapes."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.bounds: dict[str, Range] = {}
        self._wild: set[str] = set()

    def held_bytes(self, name: str) -> int:
        """What a value takes in float32; before it was seen, a share of what may be held."""
        if name not in self.shapes:
            return _HELD_BYTES // _FIRST_COUNT
        return 4 * math.prod(self.shapes[name])

    def add(self, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            if not isinstance(value, np.ndarray) or not value.size:
                continue
            if value.size >= math.prod(self.shapes.get(name, ())):
                self.shapes[name] = value.shape
            exact = value.astype(np.float32, copy=False)
            low, high = float(exact.min()), float(exact.max())
            if name in self._wild or not np.isfinite((low, high)).all():
                self._wild.add(name)
                self.bounds.pop(name, None)
                continue
            least, largest = self.bounds.get(name, (low, high))
            self.bounds[name] = min(low, least), max(high, largest)

    def observed(self, names: Sequence[str]) -> dict[str, Observed]:
        """By name; without names that no run computed, and without bounds if not all are finite."""
        return {
            name: Observed(self.bounds.get(name), self.shapes[name])
            for name in names
            if name in self.shapes
        }
