"""A load that is ready after one of its sizes, and what is captured behind it; fresh processes.

The clock starts when libraries are imported and the GPU has its context.  Beside it: a load with
all sizes captured, and a plain session with its first run at the one size, from the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.child import one_record
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.run import Run

SECONDS, ROUNDS = 180, 3
# Convolutions are planned for each size, and long outputs are compared.
OF = ("resnet50", "bert", "convnext_t", "segformer")
ALL, FIRST, PLAIN = "all sizes", "one size first", "plain session"
# Behind the load of one size first.
CAPTURED, LONGEST = "until all are captured", "longest call meanwhile"


def run(run: Run) -> None:
    """Measure the wanted ones of these networks in their first precision, with several batches."""
    settings = run.settings
    for case, network, model in run.cases("behind", OF):
        precision, batches = case.partition("/")[2], settings.batches(network)
        if len(batches) < 2:
            batches = (1, *batches)
        with run.guarded("behind", [case]):
            fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
            plain = in_type(model, precision)
            request = {
                "settings": settings.to_json(),
                "network": network.name,
                # As requests have it that want an answer at once.
                "batch": batches[0],
                "artifact": str(artifact(settings, model, precision, fields)),
                "plain": str(plain or ""),
            }
            samples: dict[str, list[float]] = {}
            # Round 0 fills the store and the page cache, and is not counted.
            for turn in range(settings.rounds(ROUNDS) + 1):
                for side in (ALL, FIRST, *([PLAIN] if plain else [])):
                    found = one_record(
                        "rows.behind:began", {**request, "side": side}, seconds=SECONDS
                    )
                    for what, seconds in found.items() if turn else ():
                        samples.setdefault(what, []).append(seconds)
            run.keep("behind", {"case": case, "samples": samples})


def began(request: dict[str, Any]) -> Iterator[dict[str, float]]:
    """In a fresh process: seconds of one side, and of what goes on behind it."""
    import aotc
    from aotc.host.nvidia import free_memory
    from benchmarks.gpu import contenders
    from benchmarks.gpu.inputs import as_taken, inputs_at

    settings, side = Settings.from_json(request["settings"]), request["side"]
    network = NETWORKS[request["network"]]
    inputs = inputs_at(settings.model(network.name), network.sizes(request["batch"]))
    # Makes the GPU's context.
    free_memory()
    started = time.perf_counter()
    if side == PLAIN:
        contenders.plain_session(settings, request["plain"]).run(None, inputs)
        yield {side: time.perf_counter() - started}
        return
    first = [{"batch": request["batch"]}] if side == FIRST else None
    model = aotc.load(request["artifact"], store=settings.store, capture_first=first)
    found = {side: time.perf_counter() - started}
    if side == FIRST:
        longest, given = 0.0, as_taken(model, inputs)
        while True:
            begun = time.perf_counter()
            model.run(given)
            longest = max(longest, time.perf_counter() - begun)
            captures = model.report.variants[0].captures
            if captures is None or not captures.waiting:
                break
        found |= {CAPTURED: time.perf_counter() - started, LONGEST: longest}
    yield found
