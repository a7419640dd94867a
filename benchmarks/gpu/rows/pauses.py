"""Requests after a pause, of a loaded artifact and of a plain session, which are both warm.

A GPU and its host slow down when nothing is asked of them, whoever asks then.  Both sides answer
`run` with host arrays, each after a pause of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.inputs import Inputs, inputs_at
from benchmarks.gpu.run import Run

SECONDS = 120
PAUSES = (0.0, 0.01, 0.1, 1.0)
CALLS = {0.0: 100, 0.01: 30, 0.1: 15, 1.0: 5}
OURS, PLAIN = "aotc", "plain session"


def label(side: str, pause: float) -> str:
    """The name of the samples of one side after so many seconds."""
    return f"{side}, {pause * 1e3:g} ms"


def run(run: Run) -> None:
    """Measure each wanted network in the first precision, at its middle batch."""
    settings = run.settings
    precision = settings.precisions[0]
    for case, network, model in run.cases("pauses"):
        with run.guarded("pauses", [case]):
            fields = profile_fields(
                settings, precision, batch_dims(settings.batches(network), network.dims)
            )
            request = {
                "settings": settings.to_json(),
                "network": network.name,
                "artifact": str(artifact(settings, model, precision, fields)),
                "plain": str(in_type(model, precision)),
                "case": case,
            }
            run.keep_records("pauses", "rows.pauses:answer", request, SECONDS)


def answer(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: seconds of calls, by side and pause."""
    import aotc
    from benchmarks.gpu import contenders

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    sizes = network.sizes(settings.batches(network)[1])
    inputs = inputs_at(settings.model(network.name), sizes)
    model = aotc.load(request["artifact"], store=settings.store)
    session = contenders.plain_session(settings, Path(request["plain"]))
    calls: dict[str, Callable[[Inputs], Any]] = {
        OURS: model.run,
        PLAIN: lambda given: session.run(None, given),
    }
    samples: dict[str, list[float]] = {}
    for pause in PAUSES:
        for side, call in calls.items():
            for _ in range(settings.rounds(10)):
                call(inputs)
            spent = samples[label(side, pause)] = []
            for _ in range(settings.rounds(CALLS[pause])):
                given = {name: array.copy() for name, array in inputs.items()}
                time.sleep(pause)
                started = time.perf_counter()
                call(given)
                spent.append(time.perf_counter() - started)
    yield {"case": request["case"], "samples": samples}
