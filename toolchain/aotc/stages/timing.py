"""Timing of variants in alternating runs, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.manifest.variant import SessionSpec
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel, ReferenceRun

_WARM_UP_RUNS: Final = 3
# A round of a slow model is one run; of a fast one as many as fill this time.
_ROUND_SECONDS: Final = 0.02
_MAX_RUNS: Final = 50
# ONNX Runtime's threads spin for about 50 ms, and take a core from the next candidate.
_PAUSE_SECONDS: Final = 0.12


def time_alternately(
    lowered: Sequence[LoweredModel],
    reference: ReferenceRun,
    options: BuildOptions,
    *,
    rounds: int,
    folder: Path,
    where: str,
) -> list[tuple[float, float]]:
    """Median and minimum seconds of one run of each variant, in one process, alternating."""
    value = options.workers.run(
        "aotc.stages.timing:measure_job",
        {
            "rounds": rounds,
            "libraries": {s.provider: s.library for s in options.profile.plugins.values()},
            "inputs": {name: str(path) for name, path in reference.inputs.items()},
            "candidates": [
                {
                    "model": str(item.model),
                    "contexts": bool(item.contexts),
                    "weights": str(item.weights),
                    "session": encode(item.session),
                    "providers": list(item.providers),
                }
                for item in lowered
            ],
        },
        folder=folder,
        where=where,
    ).value
    return [(median, minimum) for median, minimum in value]


def measure_job(request: Json) -> Json:
    """In the worker: median and minimum seconds of a run of each candidate, alternating."""
    from aotc.engine import values
    from aotc.engine.session import create_session, run

    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    libraries = {name: Path(path) for name, path in request["libraries"].items()}
    sessions = [
        create_session(
            Path(candidate["model"])
            if candidate["contexts"]
            else Path(candidate["model"]).read_bytes(),
            decode(SessionSpec, candidate["session"]),
            providers=candidate["providers"],
            weights_folder=Path(candidate["weights"]),
            context_path=Path(candidate["model"]),
            libraries=libraries,
        )
        for candidate in request["candidates"]
    ]
    repeats = []
    for session in sessions:
        for _ in range(_WARM_UP_RUNS):
            started = time.perf_counter()
            run(session, inputs)
            seconds = time.perf_counter() - started
        repeats.append(max(1, min(_MAX_RUNS, int(_ROUND_SECONDS / max(seconds, 1e-6)))))
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(request["rounds"]):
        for session, count, found in zip(sessions, repeats, times, strict=True):
            # The previous candidate left its threads spinning and its data in the caches.
            time.sleep(_PAUSE_SECONDS)
            run(session, inputs)
            started = time.perf_counter()
            for _ in range(count):
                run(session, inputs)
            found.append((time.perf_counter() - started) / count)
    return [[statistics.median(found), min(found)] for found in times]
