"""A session of the artifact's own, profiled by ONNX Runtime: no call in it is timed otherwise."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.benching.node_times import (
    KnownNodes,
    ProfiledRun,
    faster_half,
    nodes_report,
    profiled_runs,
)
from aotc.benching.sides import Inputs
from aotc.benching.trace_events import read_events
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.bench_reports import NodesReport
from aotc.engine.device.cuda_place import CudaPlace
from aotc.engine.padding import Padder
from aotc.engine.session import ort_errors, ort_message
from aotc.errors import AotcError
from aotc.files.work_folders import temporary_folder
from aotc.records import record, replace
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.runners import open_runner
from aotc.runtime.warmup import open_variant

if TYPE_CHECKING:
    import onnxruntime as ort

# The first runs of a session allocate memory, and choose kernels.
_WARM_UP: Final = 3
_RUNS: Final = 20
_SECONDS: Final = 5.0
# ONNX Runtime's profiler keeps a million events, and nothing of later ones.
_MAX_EVENTS: Final = 500_000
# Operators whose subgraph runs as often as their inputs say.
_REPEATING: Final = ("Loop", "Scan")


@record
class Profiled:
    """The times per node, and the profiled runs; `start` is that of the first, by `perf_counter`.

    `names` are the payload's names of nodes, and their partitions, by the names in the runs.
    """

    report: NodesReport
    start: float
    names: Mapping[str, tuple[str, str]]
    runs: tuple[ProfiledRun, ...]


def profile_nodes(ready: ReadyModel, inputs: Inputs, threads: int | None) -> Profiled:
    """Time per node of the variant that takes these inputs, padded as `run` pads them.

    A variant that captures CUDA graphs runs without them here, because a replayed graph has no
    nodes that could be told apart.  With a loop, the events of one run are counted first, in a
    session of its own.  Raises as creating a session does, R005, AOTC-I066 if ONNX Runtime's
    profile was cut off or lacks a run, and I018 and I026 if it cannot be written.
    """
    route = ready.route(inputs)
    variant = next(each for each in ready.variants if each.name == route.variant)
    sizes = route.padded_to or route.sizes
    if route.padded_to:
        padder = Padder(ready.manifest.inputs, ready.manifest.padding)
        inputs = padder.pad(inputs, route.sizes, route.padded_to).inputs
    with temporary_folder("profile") as folder:
        events = len(variant.placement.nodes)
        if any(node.op in _REPEATING for node in variant.placement.nodes):
            path, _, _ = _run(ready.payload, variant, inputs, sizes, threads, folder, 1)
            found = read_events(path)
            _require_runs(profiled_runs(found, path), 1, path)
            events = len(found)
            path.unlink()
        most = max(1, _MAX_EVENTS // max(1, events))
        path, start, count = _run(ready.payload, variant, inputs, sizes, threads, folder, most)
        runs = profiled_runs(read_events(path), path)
        _require_runs(runs, count, path)
        runs = runs[min(_WARM_UP, most - 1) :]
    known = KnownNodes(runs, variant, ready.payload)
    profiled = {node.node: node.op for run in runs for node in run.nodes}
    parts = {name: known.partition(name) for name in profiled}
    return Profiled(
        report=nodes_report(faster_half(runs), variant, known, len(runs)),
        start=start,
        names={
            name: (known.name(name, profiled[name]), part.name if part else "")
            for name, part in parts.items()
        },
        runs=tuple(runs),
    )


def _require_runs(runs: Sequence[ProfiledRun], count: int, path: Path) -> None:
    """Raise AOTC-I066 unless all runs are in the profile, of which the first events are kept."""
    if len(runs) != count:
        raise AotcError(
            "AOTC-I066",
            "ONNX Runtime's profile lacks runs, as it keeps a million events",
            where=str(path),
            expected=f"{count} runs",
            found=f"{len(runs)} runs",
            fix="Measure without --nodes and --trace, or with fewer rounds of the model's loops.",
        )


def _run(
    payload: Path,
    variant: Variant,
    inputs: Inputs,
    sizes: Mapping[str, int],
    threads: int | None,
    folder: Path,
    most: int,
) -> tuple[Path, float, int]:
    """The profile, the start of the first run after the warm-up, and the number of all runs.

    There are at most `most` runs, and no warm-up if that is 1.
    """

    def opened(settings: Mapping[str, Mapping[str, str]]) -> ort.InferenceSession:
        return open_variant(
            payload, variant, threads=threads, settings=settings, profile=folder / "session"
        )

    runner = open_runner(replace(variant, graphs=None), CudaPlace(), opened)
    try:
        count = min(_WARM_UP, most - 1)
        for _ in range(count):
            runner.run(inputs, None, sizes)
        last = min(count + _RUNS, most)
        start, first = time.perf_counter(), count
        while count < last and (count == first or time.perf_counter() - start < _SECONDS):
            runner.run(inputs, None, sizes)
            count += 1
        try:
            written = Path(runner.session.end_profiling())
        except ort_errors() as error:
            raise AotcError(
                "AOTC-I066", "ONNX Runtime wrote no profile", found=ort_message(error)
            ) from None
    finally:
        runner.close()
    return written, start, count
