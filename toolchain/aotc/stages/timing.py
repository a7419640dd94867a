"""Timing of variants in alternating runs, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.job_steps import steps_of, tell_steps
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel, ReferenceRun

_WARM_UP_RUNS: Final = 3
# A round of a slow model is one run; of a fast one as many as fill this time.
_ROUND_SECONDS: Final = 0.02
_MAX_RUNS: Final = 50
# ONNX Runtime's threads spin for about 50 ms, and take a core from the next candidate.
_PAUSE_SECONDS: Final = 0.12
# A captured graph is refused: by ONNX Runtime, without cuda-bindings, or without a GPU.
_REFUSED: Final = frozenset({"AOTC-R024", "AOTC-I019", "AOTC-R025"})

# Median and minimum seconds of a run, or why there is none.
Timed = tuple[float, float] | AotcError


def time_alternately(
    lowered: Sequence[LoweredModel],
    reference: ReferenceRun,
    options: BuildOptions,
    *,
    rounds: int,
    folder: Path,
    where: str,
) -> list[Timed]:
    """Median and minimum seconds of one run of each variant, in one process, alternating.

    A variant that captures CUDA graphs replays one.  If that is refused, it runs without, or has
    the error in place of its seconds, as its plan says.
    """
    timed, _ = time_and_compare(
        lowered, reference, options, rounds=rounds, folder=folder, where=where
    )
    return timed


def time_and_compare(
    lowered: Sequence[LoweredModel],
    reference: ReferenceRun,
    options: BuildOptions,
    *,
    rounds: int,
    folder: Path,
    where: str,
) -> tuple[list[Timed], bool]:
    """`time_alternately`, and whether the last runs of all variants gave the same bytes."""
    options.clock.reporter.follow("rounds", steps_of(folder, "rounds"))
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
                    "captures": bool(item.captures),
                    "refused": item.plan.cuda.graphs.refused,
                }
                for item in lowered
            ],
        },
        folder=folder,
        where=where,
    ).value
    timed: list[Timed] = [
        AotcError(**item) if isinstance(item, dict) else (item[0], item[1])
        for item in value["timed"]
    ]
    return timed, value["same_bytes"]


def measure_job(request: Json) -> Json:
    """In the worker: median and minimum seconds of a run of each candidate, alternating.

    The fields of an error in place of those of a candidate whose graph is refused.
    """
    from aotc.engine import values
    from aotc.engine.parity import same_bits

    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    libraries = {name: Path(path) for name, path in request["libraries"].items()}
    opened = [_run_or_refusal(item, inputs, libraries) for item in request["candidates"]]
    runs = [run for run in opened if not isinstance(run, AotcError)]
    repeats = []
    for run in runs:
        for _ in range(_WARM_UP_RUNS):
            started = time.perf_counter()
            run()
            seconds = time.perf_counter() - started
        repeats.append(max(1, min(_MAX_RUNS, int(_ROUND_SECONDS / max(seconds, 1e-6)))))
    times: list[list[float]] = [[] for _ in runs]
    for number in range(request["rounds"]):
        tell_steps(number, request["rounds"])
        for run, count, found in zip(runs, repeats, times, strict=True):
            # The previous candidate left its threads spinning and its data in the caches.
            time.sleep(_PAUSE_SECONDS)
            run()
            started = time.perf_counter()
            for _ in range(count):
                run()
            found.append((time.perf_counter() - started) / count)
    answers = [run() for run in runs]
    timed = iter([[statistics.median(found), min(found)] for found in times])
    return {
        "timed": [
            {key: getattr(item, key) for key in ("code", "what", "where", "expected", "found")}
            if isinstance(item, AotcError)
            else next(timed)
            for item in opened
        ],
        "same_bytes": all(same_bits(answers[0], answer) for answer in answers[1:]),
    }


def _run_or_refusal(
    candidate: Json, inputs: Mapping[str, Any], libraries: Mapping[str, Path]
) -> Callable[[], Any] | AotcError:
    try:
        return _run_of(candidate, inputs, libraries)
    except AotcError as error:
        if not candidate["captures"] or error.code not in _REFUSED:
            raise
        if candidate["refused"] == "fail":
            return error
    return _run_of({**candidate, "captures": False}, inputs, libraries)


def _run_of(
    candidate: Json, inputs: Mapping[str, Any], libraries: Mapping[str, Path]
) -> Callable[[], Any]:
    """A run of a candidate; one that captures graphs replays that of these sizes."""
    from aotc.engine.device.capture_trial import captured_run
    from aotc.engine.device.cuda_place import Settings
    from aotc.engine.session import create_session, run

    model = Path(candidate["model"])

    def opened(settings: Settings) -> Any:
        return create_session(
            model if candidate["contexts"] else model.read_bytes(),
            decode(SessionSpec, candidate["session"]),
            providers=candidate["providers"],
            weights_folder=Path(candidate["weights"]),
            context_path=model,
            libraries=libraries,
            settings=settings,
        )

    if candidate["captures"]:
        runner = captured_run(opened, inputs, str(model))
        return lambda: runner.run(inputs, None, {})
    session = opened({})
    return lambda: run(session, inputs)
