"""Builds the artifacts of rows side by side, each in a process of its own.

A build computes each golden answer in one thread, and several of them at once: a third as many
builds as there are cores are enough to use these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, ONE_BATCH, TUNED, Only, Settings
from benchmarks.gpu.child import ChildFailedError, OutOfTimeError
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.rows import memory

Wanted = tuple[Path, str, dict[str, Any]]


def build_all(
    settings: Settings, networks: Sequence[str], rows: Collection[str], only: Only
) -> list[str]:
    """Build what is not there yet, several at once; returns what failed.

    The learned artifacts of the row `lengths` are not among them: they need the learner first.
    """
    # The longest first.
    found = builds(settings, networks, rows, only)
    wanted = sorted(found, key=lambda item: -_largest_batch(item[2]))
    at_once = max(1, min(len(wanted), max(2, len(os.sched_getaffinity(0)) // 3)))

    def built(wanted: Wanted) -> str:
        model, label, fields = wanted
        try:
            artifact(settings, model, label, fields, at_once=at_once)
        except (ChildFailedError, OutOfTimeError) as error:
            return f"{model.stem}-{label}: {error}"
        return ""

    started = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        halves = [
            pool.submit(in_type, settings.model(name), precision)
            for name in networks
            for precision in settings.precisions(NETWORKS[name], only)
        ]
        failed = [line for line in pool.map(built, wanted) if line]
        for half in halves:
            half.result()
    print(f"== artifacts: {time.monotonic() - started:.0f} s", flush=True)
    return failed


def builds(
    settings: Settings, networks: Sequence[str], rows: Collection[str], only: Only
) -> Iterator[Wanted]:
    """Model, label and profile of each artifact that rows need, `lengths` apart."""
    for name in networks:
        network, model = NETWORKS[name], settings.model(name)
        batches = settings.batches(network, only)
        first = settings.precisions(network)[0]
        once = {"load", *(["first_request"] if name in TUNED else [])}
        called = not {"calls", "kernels", "chains", "convolutions"}.isdisjoint(rows)
        wanted = settings.precisions(network, only) if called else ()
        if not once.isdisjoint(rows) and first not in wanted:
            wanted = (first, *wanted)
        for precision in wanted:
            fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
            yield model, precision, fields
        if name not in TUNED:
            continue
        if "first_answer" in rows:
            one = [2 if settings.small else ONE_BATCH]
            fields = profile_fields(settings, first, batch_dims(one, network.dims))
            yield model, f"{first}-1-size", fields
        if "memory" in rows and not settings.cpu:
            for sizes in (memory.BATCHES, memory.BATCHES[-1:]):
                fields = profile_fields(settings, first, batch_dims(sizes, network.dims))
                yield model, f"{first}-{len(sizes)}-sizes", fields


def _largest_batch(fields: dict[str, Any]) -> int:
    return int(max(fields["dims"]["batch"]["buckets"]))
