"""What a build, a load and the device's memory take, beside a plain session and its first run.

Seconds are of fresh processes that have imported ONNX Runtime and made the GPU's context; the
memory is that of the device, without the context.  A load ends when the model is ready, with all
its sizes captured; the plain session has run once at the largest of them, from the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, how_built, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.child import one_record
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.inputs import inputs_at
from benchmarks.gpu.run import Run

SECONDS, ROUNDS = 120, 2
OURS, PLAIN = "aotc", "plain session"


def run(run: Run) -> None:
    """Measure each wanted network in its first precision, with its wanted batches captured."""
    settings = run.settings
    for case, network, model in run.cases("load"):
        with run.guarded("load", [case]):
            precision = settings.precisions(network)[0]
            batches = settings.batches(network, run.only)
            fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
            plain = in_type(model, precision)
            path = artifact(settings, model, precision, fields)
            request = {
                "settings": settings.to_json(),
                "network": network.name,
                "batch": max(batches),
                "artifact": str(path),
                "plain": str(plain or ""),
            }
            functions = {OURS: "loaded", **({PLAIN: "ran_once"} if plain else {})}
            samples: dict[str, list[float]] = {side: [] for side in functions}
            taken: dict[str, int | None] = {}
            # Round 0 fills the store and the page cache, and is not counted.
            for turn in range(ROUNDS):
                for side, name in functions.items():
                    found = one_record(f"rows.load:{name}", request, seconds=SECONDS)
                    if turn:
                        samples[side].append(found["seconds"])
                        taken[side] = found["bytes"]
            found = {"bytes": taken, "build": how_built(path), "batches": batches}
            run.keep("load", {"case": case, "samples": samples, **found})


def loaded(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a load until the model is ready."""
    import aotc
    from aotc.host.nvidia import free_memory, memory_taken
    from aotc.providers.ort import import_onnxruntime

    import_onnxruntime()
    before = free_memory()
    started = time.perf_counter()
    model = aotc.load(request["artifact"], store=Settings.from_json(request["settings"]).store)
    seconds = time.perf_counter() - started
    yield {"seconds": seconds, "bytes": memory_taken(before), "ready": model.ready}


def ran_once(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a plain session, and its first run."""
    import onnxruntime as ort

    from aotc.host.nvidia import free_memory, memory_taken

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    inputs = inputs_at(settings.model(network.name), network.sizes(request["batch"]))
    own = [] if settings.cpu else ["CUDAExecutionProvider"]
    before = free_memory()
    started = time.perf_counter()
    if own:
        ort.preload_dlls()
    session = ort.InferenceSession(Path(request["plain"]), providers=[*own, "CPUExecutionProvider"])
    session.run(None, inputs)
    seconds = time.perf_counter() - started
    if own and own[0] not in session.get_providers():
        raise RuntimeError("ONNX Runtime has no CUDA here")
    yield {"seconds": seconds, "bytes": memory_taken(before)}
