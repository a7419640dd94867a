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
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from aotc.contract.codec.parsing import encode
from aotc.engine.file_digest import file_sha256
from aotc.learning.cost_table import CostTable
from aotc.learning.measure import spread
from aotc.passes.fix_dims import FixDims
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
    """Seconds at lengths up to `highest`; `rounds` of them at each, in each of two passes."""
    sizes = sorted({1, 2, 4, 8, *range(16, highest + 1, 16)})
    # Between them the dynamic graph alone is measured.
    between = {3, 6, 12, *range(19, highest, 16), *range(28, highest, 16)}
    dynamic_sizes = sorted({*sizes, *between})
    with tempfile.TemporaryDirectory(prefix="aotc-costs-") as folder:
        opener = _Opener(model, precision, Path(folder))
        fixed, moving, usual = _measure(opener, sizes, dynamic_sizes, rounds)
    return CostTable(
        dims=("sequence",),
        sizes={"sequence": tuple(sizes)},
        static=tuple(usual * statistics.median(fixed[size]) for size in sizes),
        dynamic_sizes={"sequence": tuple(dynamic_sizes)},
        dynamic=tuple(usual * statistics.median(moving[size]) for size in dynamic_sizes),
        noise=statistics.median(spread(each) for each in (*fixed.values(), *moving.values())),
        backend=f"onnxruntime {ort.__version__}, {PROVIDER} "
        f"{version('onnxruntime-ep-openvino')} in {HINTS[precision]}, 2 cores of {_cpu()}",
        source=file_sha256(model),
        others={"batch": 1},
    )


def _measure(
    opener: _Opener, sizes: Sequence[int], dynamic_sizes: Sequence[int], rounds: int
) -> tuple[dict[int, list[float]], dict[int, list[float]], float]:
    """By size, of static sessions and of the dynamic one, without first runs.

    In runs of one graph at one size beside them, as the machine's speed changes by the second; and
    the usual seconds of such a run.
    """
    dynamic = opener.open({"batch": 1})
    middle = sizes[len(sizes) // 2]
    beside = opener.open({"batch": 1, "sequence": middle})
    _seconds(beside, middle)
    paces: list[float] = []
    drawn = random.Random(SEED)
    turns = _forever(drawn, dynamic_sizes)
    fixed: dict[int, list[float]] = {size: [] for size in sizes}
    moving: dict[int, list[float]] = {size: [] for size in dynamic_sizes}
    # Two passes: what else the machine does for a while does not fall on all runs of a size.
    for size in (size for _ in range(PASSES) for size in drawn.sample(sizes, len(sizes))):
        session = opener.open({"batch": 1, "sequence": size})
        _seconds(session, size)
        for _ in range(rounds):
            paces.append(_seconds(beside, middle))
            fixed[size].append(_seconds(session, size) / paces[-1])
            # Lengths change from call to call, as in production.
            other = next(turns)
            moving[other].append(_seconds(dynamic, other) / paces[-1])
    while min(map(len, moving.values())) < rounds + 1:
        other = next(turns)
        paces.append(_seconds(beside, middle))
        moving[other].append(_seconds(dynamic, other) / paces[-1])
    # The first run at a length warms up.
    return fixed, {size: each[1:] for size, each in moving.items()}, statistics.median(paces)


def _forever(drawn: random.Random, sizes: Sequence[int]) -> Iterator[int]:
    return itertools.chain.from_iterable(
        drawn.sample(sizes, len(sizes)) for _ in itertools.repeat(None)
    )


class _Opener:
    """Sessions of one model with sizes written in; its weights lie in one file in `folder`."""

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
