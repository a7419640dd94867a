"""Record the cost of a compiling backend at each length, for the learner: OpenVINO on BERT-base.

`python -m benchmarks.record_costs MODEL COSTS.json` where onnxruntime-ep-openvino is installed.
Every length is compiled with its sizes fixed.  Alternating with it the dynamic graph runs, with
another length each time: what OpenVINO caches for a shape does not help the next, as in production.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from aotc.base.files.reading import file_sha256
from aotc.graph.passes.with_sizes import FixDims
from aotc.spec.codec import encode
from aotc.tools.learn_costs import CostTable, spread
from benchmarks.contenders import HINTS, PROVIDER, plugin_options

HIGHEST = 512
ROUNDS, PASSES = 6, 2
SEED = 20261121


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--precision", choices=HINTS, default="bfloat16")
    arguments = parser.parse_args()
    table = record(arguments.model, arguments.precision)
    arguments.output.write_text(json.dumps(encode(table), indent=1) + "\n")


def record(
    model: Path, precision: str, *, highest: int = HIGHEST, rounds: int = ROUNDS
) -> CostTable:
    """Seconds at lengths up to `highest`, `rounds` times at each, in each of two passes."""
    sizes = sorted({1, 2, 4, 8, *range(16, highest + 1, 16)})
    # Between them only the dynamic graph is measured.
    between = {3, 6, 12, *range(19, highest, 16), *range(28, highest, 16)}
    dynamic_sizes = sorted({*sizes, *between})
    with tempfile.TemporaryDirectory(prefix="aotc-costs-") as folder:
        opener = _Opener(model, precision, Path(folder))
        fixed, moving, median_pace = _measure(opener, sizes, dynamic_sizes, rounds)
    return CostTable(
        dims=("sequence",),
        sizes={"sequence": tuple(sizes)},
        static=tuple(median_pace * statistics.median(fixed[size]) for size in sizes),
        dynamic_sizes={"sequence": tuple(dynamic_sizes)},
        dynamic=tuple(median_pace * statistics.median(moving[size]) for size in dynamic_sizes),
        noise=statistics.median(spread(samples) for samples in (*fixed.values(), *moving.values())),
        backend=f"onnxruntime {ort.__version__}, {PROVIDER} "
        f"{version('onnxruntime-ep-openvino')} in {HINTS[precision]}, 2 cores of {_cpu()}",
        model_sha256=file_sha256(model),
        others={"batch": 1},
    )


def _measure(
    opener: _Opener, sizes: Sequence[int], dynamic_sizes: Sequence[int], rounds: int
) -> tuple[dict[int, list[float]], dict[int, list[float]], float]:
    """Samples by size, of static sessions and of the dynamic one, without first runs.

    They are measured in runs of a reference session right before them, because the machine's speed
    changes from second to second.  The last result is the median seconds of such a run.
    """
    dynamic = opener.open({"batch": 1})
    middle = sizes[len(sizes) // 2]
    reference = opener.open({"batch": 1, "sequence": middle})
    _seconds(reference, middle)
    paces: list[float] = []
    generator = random.Random(SEED)
    turns = _endless_samples(generator, dynamic_sizes)
    fixed: dict[int, list[float]] = {size: [] for size in sizes}
    moving: dict[int, list[float]] = {size: [] for size in dynamic_sizes}
    # Two passes, so that a temporary disturbance does not affect all runs of a size.
    for size in (size for _ in range(PASSES) for size in generator.sample(sizes, len(sizes))):
        session = opener.open({"batch": 1, "sequence": size})
        _seconds(session, size)
        for _ in range(rounds):
            paces.append(_seconds(reference, middle))
            fixed[size].append(_seconds(session, size) / paces[-1])
            # Lengths change from call to call, as in production.
            other = next(turns)
            moving[other].append(_seconds(dynamic, other) / paces[-1])
    while min(map(len, moving.values())) < rounds + 1:
        other = next(turns)
        paces.append(_seconds(reference, middle))
        moving[other].append(_seconds(dynamic, other) / paces[-1])
    # The first run at a length only warms up.
    return fixed, {size: samples[1:] for size, samples in moving.items()}, statistics.median(paces)


def _endless_samples(generator: random.Random, sizes: Sequence[int]) -> Iterator[int]:
    return itertools.chain.from_iterable(
        generator.sample(sizes, len(sizes)) for _ in itertools.repeat(None)
    )


class _Opener:
    """Opens sessions of one model with fixed sizes; its weights are in one file in `folder`."""

    def __init__(self, model: Path, precision: str, folder: Path) -> None:
        self._model = onnx.load(model)
        self._hint = HINTS[precision]
        self._path = folder / "fixed.onnx"
        onnx.external_data_helper.convert_model_to_external_data(
            self._model, location="weights.bin", size_threshold=1024
        )
        onnx.external_data_helper.write_external_data_tensors(self._model, str(folder))

    def open(self, sizes: Mapping[str, int]) -> ort.InferenceSession:
        fixed = onnx.ModelProto()
        fixed.CopyFrom(self._model)
        FixDims(sizes=sizes).apply(fixed)
        self._path.write_bytes(fixed.SerializeToString())
        return ort.InferenceSession(str(self._path), plugin_options(self._hint), enable_fallback=0)


def _seconds(session: ort.InferenceSession, size: int) -> float:
    given: dict[str, Any] = {
        value.name: np.ones((1, size), np.int64) * (value.name != "token_type_ids")
        for value in session.get_inputs()
    }
    started = time.perf_counter()
    session.run(None, given)
    return time.perf_counter() - started


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


if __name__ == "__main__":
    main()
