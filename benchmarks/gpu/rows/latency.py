"""Latency with tensors on the device: captured graphs, torch.compile and a plain session.

A process handles one network in one precision; sides take turns in it, at each batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import AUTOTUNED_BATCH, NETWORKS, Settings
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.run import Run

SECONDS, AUTOTUNE_SECONDS = 420, 560
OURS, TORCH, PLAIN = "aotc", "torch.compile", "plain session"
COPYING = "aotc, with new inputs"
REDUCED, AUTOTUNED = "reduce-overhead", "max-autotune"


def run(run: Run) -> None:
    """Measure all wanted networks and precisions."""
    measure(run, "latency", REDUCED, SECONDS)


def measure(run: Run, row: str, mode: str, seconds: float) -> None:
    """Measure with torch's `mode`; max-autotune at one batch only."""
    settings = run.settings
    for name in run.networks:
        network = NETWORKS[name]
        batches = settings.batches(network)
        timed = batches if mode == REDUCED else [n for n in batches if n == AUTOTUNED_BATCH]
        timed = [batch for batch in timed if run.only.batch(batch)]
        for precision in filter(run.only.precision, settings.precisions):
            cases = {f"{name}/{precision}/{batch}": batch for batch in timed}
            wanted = {case: batch for case, batch in cases.items() if run.wants(row, case)}
            if not wanted:
                continue
            with run.guarded(row, wanted):
                model = settings.model(name)
                dims = batch_dims(batches, network.dims)
                fields = profile_fields(settings, precision, dims)
                request = {
                    "settings": settings.to_json(),
                    "network": name,
                    "precision": precision,
                    "artifact": str(artifact(settings, model, precision, fields)),
                    "plain": str(in_type(model, precision)),
                    "cases": wanted,
                    "mode": mode,
                }
                run.keep_records(row, "rows.latency:time_cases", request, seconds)


def time_cases(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a record for each batch."""
    from benchmarks.gpu import contenders

    contenders.prepare_torch()
    import aotc
    from benchmarks.gpu import networks
    from benchmarks.gpu.inputs import inputs_at

    settings, precision = Settings.from_json(request["settings"]), request["precision"]
    network = NETWORKS[request["network"]]
    module = networks.network(network.name, settings.small)
    started = time.perf_counter()
    model = aotc.load(request["artifact"], store=settings.store)
    load_seconds = time.perf_counter() - started
    session = contenders.plain_session(settings, Path(request["plain"]))
    for case, batch in request["cases"].items():
        inputs = inputs_at(settings.model(network.name), network.sizes(batch))
        tensors = contenders.on_device(settings, inputs)
        ours, captured = contenders.bound(settings, model, tensors)
        plain, outputs = contenders.plain(settings, session, tensors)
        theirs = contenders.compiled(settings, module, tensors, precision, request["mode"])
        started = time.perf_counter()
        theirs()
        compile_seconds = time.perf_counter() - started
        again, _ = contenders.with_new_inputs(settings, model, contenders.copied(tensors))
        copying = partial(again, tensors)
        calls = {OURS: ours, COPYING: copying, TORCH: theirs, PLAIN: plain}
        samples = _alternate(settings, calls)
        plain()
        expected = {name: value.numpy() for name, value in outputs.items()}
        found = contenders.answers(ours())
        yield {
            "case": case,
            "samples": samples,
            "captured": captured,
            "mode": request["mode"],
            "variant": model.route(inputs).variant,
            "load_seconds": load_seconds,
            "compile_seconds": compile_seconds,
            "difference": contenders.difference(found, expected),
        }


def _alternate(settings: Settings, calls: dict[str, Any]) -> dict[str, list[float]]:
    from benchmarks.gpu.timing import by_turns, enough_rounds

    for call in calls.values():
        for _ in range(3):
            call()
    started = time.perf_counter()
    for call in calls.values():
        call()
    once = time.perf_counter() - started
    return by_turns(calls, settings.rounds(enough_rounds(once)), warm_up=settings.rounds(10))
