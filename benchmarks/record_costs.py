"""Record what a compiling backend costs at each length, for the learner: OpenVINO on BERT-base.

`python -m benchmarks.record_costs MODEL COSTS.json` where onnxruntime-ep-openvino is installed.
Every length is compiled with its sizes written in.  By turns with it the dynamic graph runs, at
another length each time: what OpenVINO keeps of a shape does not help the next, as in production.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from aotc.contract.costs import CostTable
from aotc.contract.parsing import encode
from aotc.engine.file_digest import file_sha256
from aotc.learning.measure import spread
from aotc.passes.fix_dims import FixDims

PROVIDER = "OpenVINOExecutionProvider"
SIZES = tuple(sorted({1, 2, 4, 8, *range(16, 513, 16)}))
# Between them the dynamic graph alone is measured.
DYNAMIC_SIZES = tuple(sorted({*SIZES, 3, 6, 12, *range(19, 512, 16), *range(28, 512, 16)}))
ROUNDS = 12
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
    drawn = random.Random(SEED)
    turns = itertools.chain.from_iterable(
        drawn.sample(DYNAMIC_SIZES, len(DYNAMIC_SIZES)) for _ in iter(int, 1)
    )
    moving: dict[int, list[float]] = {size: [] for size in DYNAMIC_SIZES}
    fixed: dict[int, list[float]] = {}
    for size in drawn.sample(SIZES, len(SIZES)):
        session = _open(model, {"batch": 1, "sequence": size})
        fixed[size] = []
        for _ in range(ROUNDS):
            fixed[size].append(_seconds(session, size))
            # Lengths change from call to call, as in production.
            other = next(turns)
            moving[other].append(_seconds(dynamic, other))
    while min(map(len, moving.values())) < ROUNDS:
        other = next(turns)
        moving[other].append(_seconds(dynamic, other))
    # The first run at a length warms up.
    kept = {size: each[1:] for size, each in fixed.items()}
    moved = {size: each[1:] for size, each in moving.items()}
    table = CostTable(
        dims=("sequence",),
        sizes={"sequence": SIZES},
        static=tuple(statistics.median(kept[size]) for size in SIZES),
        dynamic_sizes={"sequence": DYNAMIC_SIZES},
        dynamic=tuple(statistics.median(moved[size]) for size in DYNAMIC_SIZES),
        noise=statistics.median(spread(each) for each in (*kept.values(), *moved.values())),
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
