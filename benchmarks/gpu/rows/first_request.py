"""The first request of a model that says it is ready, compared with later ones; fresh processes.

Every request comes in arrays of its own, which were just written, as a server's do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, TUNED, Settings
from benchmarks.gpu.child import one_record
from benchmarks.gpu.run import Run

SECONDS = 120
PROCESSES, LATER = 9, 50
FIRST, STEADY = "first", "steady"


def run(run: Run) -> None:
    """Measure each wanted network in the first precision, with all its batches captured."""
    settings = run.settings
    for case, network, model in run.cases("first_request", TUNED):
        with run.guarded("first_request", [case]):
            precision = settings.precisions(network)[0]
            batches = settings.batches(network)
            fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
            request = {
                "settings": settings.to_json(),
                "network": network.name,
                "artifact": str(artifact(settings, model, precision, fields)),
            }
            samples: dict[str, list[float]] = {FIRST: [], STEADY: []}
            for _ in range(settings.rounds(PROCESSES)):
                found = one_record("rows.first_request:answer", request, seconds=SECONDS)
                for what, seconds in samples.items():
                    seconds.append(found[what])
            run.keep("first_request", {"case": case, "samples": samples})


def answer(request: dict[str, Any]) -> Iterator[dict[str, float]]:
    """In a fresh process: seconds of the first `run` of the middle batch, and of later ones."""
    import aotc
    from benchmarks.gpu.inputs import as_taken, inputs_at

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    batch = settings.batches(network)[1]
    inputs = inputs_at(settings.model(network.name), network.sizes(batch))
    model = aotc.load(request["artifact"], store=settings.store)
    spent, inputs = [], as_taken(model, inputs)
    for _ in range(LATER + 1):
        given = {name: array.copy() for name, array in inputs.items()}
        started = time.perf_counter()
        model.run(given)
        spent.append(time.perf_counter() - started)
    yield {FIRST: spent[0], STEADY: median(spent[1:])}
