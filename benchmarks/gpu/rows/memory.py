"""Device memory with eight captured sizes, compared with one; fresh processes.

The one size is the largest of the eight.  What counts is taken by the load; the CUDA context of the
process is not counted.
"""

from __future__ import annotations

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import TUNED
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
    for case, network, model in run.cases("memory", TUNED):
        with run.guarded("memory", [case]):
            precision = settings.precisions(network)[0]
            found = {}
            for what, batches in {EIGHT: BATCHES, ONE: BATCHES[-1:]}.items():
                fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
                label = f"{precision}-{len(batches)}-sizes"
                path = artifact(settings, model, label, fields)
                request = {"settings": settings.to_json(), "artifact": str(path)}
                found[what] = one_record("rows.load:loaded", request, seconds=SECONDS)["bytes"]
            run.keep("memory", {"case": case, "bytes": found})
