"""Record what a compiling backend costs at each length, for the learner: OpenVINO on BERT-base.

`python -m benchmarks.record_costs MODEL COSTS.json` where onnxruntime-ep-openvino is installed.
Every length is compiled with its sizes written in, and the dynamic graph runs at it by turns.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from aotc.contract.costs import CostTable
from aotc.contract.parsing import encode
from aotc.engine.file_digest import file_sha256
from aotc.passes.fix_dims import FixDims

PROVIDER = "OpenVINOExecutionProvider"
SIZES = tuple(sorted({1, 2, 4, 8, *range(16, 513, 16)}))
# Between them the dynamic graph alone is measured.
DYNAMIC_SIZES = tuple(sorted({*SIZES, 3, 6, 12, *range(19, 512, 16), *range(28, 512, 16)}))
ROUNDS, LEAST_SECONDS = 7, 0.25
SEED = 20261121


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    import onnxruntime_ep_openvino as plugin

    ort.register_execution_provider_library(PROVIDER, plugin.get_library_path())
    model = onnx.load(arguments.model)
    dynamic = _open(model, {"batch": 1})
    rows: dict[int, tuple[list[float], float]] = {}
    order = list(DYNAMIC_SIZES)
    random.Random(SEED).shuffle(order)
    for size in order:
        static = [_open(model, {"batch": 1, "sequence": size})] if size in SIZES else []
        rows[size] = _measure([dynamic, *static], size)
        print(size, *(f"{1e3 * figure:.2f}" for figure in rows[size][0]), flush=True)
    table = CostTable(
        dims=("sequence",),
        sizes={"sequence": SIZES},
        static=tuple(rows[size][0][1] for size in SIZES),
        dynamic_sizes={"sequence": DYNAMIC_SIZES},
        dynamic=tuple(rows[size][0][0] for size in DYNAMIC_SIZES),
        noise=statistics.median(row[1] for row in rows.values()),
        backend=f"onnxruntime {ort.__version__}, {PROVIDER} "
        f"{version('onnxruntime-ep-openvino')} in its default precision, 2 cores of {_cpu()}",
        source=file_sha256(arguments.model),
        others={"batch": 1},
    )
    arguments.output.write_text(json.dumps(encode(table), indent=1) + "\n")


def _open(model: onnx.ModelProto, sizes: Mapping[str, int]) -> ort.InferenceSession:
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    FixDims(sizes=sizes).apply(fixed)
    options = ort.SessionOptions()
    options.add_provider_for_devices(
        [each for each in ort.get_ep_devices() if each.ep_name == PROVIDER][:1], {}
    )
    return ort.InferenceSession(fixed.SerializeToString(), options, enable_fallback=0)


def _measure(sessions: Sequence[ort.InferenceSession], size: int) -> tuple[list[float], float]:
    """The median of each, and by how much one may be off, as a share."""
    given: dict[str, Any] = {
        value.name: np.ones((1, size), np.int64) * (value.name != "token_type_ids")
        for value in sessions[0].get_inputs()
    }
    # OpenVINO compiles a dynamic graph anew for a length that it has not seen.
    for session in (*sessions, *sessions):
        session.run(None, given)
    samples: list[list[float]] = [[] for _ in sessions]
    until = time.perf_counter() + LEAST_SECONDS
    while len(samples[0]) < ROUNDS or time.perf_counter() < until:
        for index, session in enumerate(sessions):
            started = time.perf_counter()
            session.run(None, given)
            samples[index].append(time.perf_counter() - started)
    spreads = []
    for each in samples:
        low, middle, high = statistics.quantiles(each, n=4)
        spreads.append((high - low) / 2 / middle / len(each) ** 0.5)
    return [statistics.median(each) for each in samples], max(spreads)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


if __name__ == "__main__":
    main()
