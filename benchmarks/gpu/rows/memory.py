"""Device memory with eight captured sizes, compared with one; fresh processes.

The one size is the largest of the eight.  What counts is taken by the load and a call of each size,
and the CUDA context of the process is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.child import one_record
from benchmarks.gpu.run import Run

SECONDS = 180
BATCHES = (1, 2, 4, 8, 12, 16, 24, 32)
EIGHT, ONE = "eight sizes", "one size"


def run(run: Run) -> None:
    """Measure each wanted network in the first precision."""
    settings = run.settings
    if settings.cpu:
        return
    precision = settings.precisions[0]
    for case, network, model in run.cases("memory"):
        with run.guarded("memory", [case]):
            found = {}
            for what, batches in {EIGHT: BATCHES, ONE: BATCHES[-1:]}.items():
                fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
                label = f"{precision}-{len(batches)}-sizes"
                request = {
                    "settings": settings.to_json(),
                    "network": network.name,
                    "batches": batches,
                    "artifact": str(artifact(settings, model, label, fields)),
                }
                found[what] = one_record("rows.memory:taken", request, seconds=SECONDS)["bytes"]
            run.keep("memory", {"case": case, "bytes": found})


def taken(request: dict[str, Any]) -> Iterator[dict[str, int]]:
    """In a fresh process: bytes of the device that the model takes."""
    import aotc
    from benchmarks.gpu import contenders
    from benchmarks.gpu.inputs import inputs_at

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    before = contenders.free_bytes()
    model = aotc.load(request["artifact"], store=settings.store)
    for batch in request["batches"]:
        model.run(inputs_at(settings.model(network.name), network.sizes(batch)))
    yield {"bytes": before - contenders.free_bytes()}
