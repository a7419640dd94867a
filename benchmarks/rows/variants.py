"""Many variants compared with one: artifact size, build time, and memory with all loaded.

Memory is the proportional set size of the process (Linux, Documentation/filesystems/proc.rst):
eight sessions map one file of weights, and its pages count once.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row, at_most, unjudged
from benchmarks.rows.memory import proportional_bytes
from benchmarks.workshop import Workshop

BUCKETS = (16, 32, 48, 64, 96, 128, 256, 512)
SMOKE_BUCKETS = (4, 8)
SIZE_LIMIT = 1.05
MEMORY_AIM = 1.3
ROUNDS = 3
# How weights are packed into memory, by the profile's variants.
FORMS = {
    "packed at load": {"variants": [{"name": "portable"}]},
    "packed by the build": {
        "variants": [
            {"name": "portable"},
            {"name": "native", "isa": "host", "prepack": "saved"},
        ]
    },
    "not packed": {"variants": [{"name": "portable", "prepack": "off"}]},
}


def run(workshop: Workshop) -> Result:
    """Build one and eight variants alternately, then load each form with one and with all."""
    buckets = SMOKE_BUCKETS if workshop.smoke else BUCKETS
    rows, samples = _builds(workshop, buckets)
    for form in FORMS:
        found, of = _memory(workshop, form, buckets)
        rows.append(found)
        samples |= of
    return Result(rows=tuple(rows), samples=samples)


def _builds(
    workshop: Workshop, buckets: tuple[int, ...]
) -> tuple[list[Row], dict[str, list[float]]]:
    seconds: dict[str, list[float]] = {"one": [], "all": []}
    bytes_: dict[str, int] = {}
    for _ in range(workshop.rounds(ROUNDS)):
        for name, chosen in (("one", buckets[-1:]), ("all", buckets)):
            workshop.progress(f"build {len(chosen)} variants")
            done = _build(workshop, "packed at load", chosen)
            seconds[name].append(done["seconds"])
            payload = Path(done["artifact"], "payload")
            bytes_[name] = sum(p.stat().st_size for p in payload.rglob("*") if p.is_file())
    one, all_seconds = median(seconds["one"]), median(seconds["all"])
    count = len(buckets)
    rows = [
        at_most(
            f"BERT-base: payload of {count} variants to that of one",
            bytes_["all"] / bytes_["one"],
            SIZE_LIMIT,
            f"{bytes_['all'] / 1e6:.1f} MB to {bytes_['one'] / 1e6:.1f} MB",
        ),
        at_most(
            f"BERT-base: build of {count} variants to {count} builds of one",
            all_seconds / (count * one),
            1.0,
            f"{all_seconds:.1f} s to {count} times {one:.1f} s",
        ),
    ]
    return rows, {"build of one": seconds["one"], "build of all": seconds["all"]}


def _build(workshop: Workshop, form: str, buckets: tuple[int, ...]) -> dict[str, Any]:
    stem = f"variants-{form.replace(' ', '-')}-{len(buckets)}"
    profile = workshop.profile(
        stem,
        {
            **FORMS[form],
            "dims": {"batch": 1, "sequence": {"buckets": list(buckets), "outside": "pad"}},
        },
    )
    return workshop.build_report(workshop.model("bert"), profile)


def _memory(
    workshop: Workshop, form: str, buckets: tuple[int, ...]
) -> tuple[Row, dict[str, list[float]]]:
    workshop.progress(f"memory, weights {form}")
    artifact = _build(workshop, form, buckets)["artifact"]
    spec = str(FORMS[form]["variants"][-1]["name"])
    request = {"artifact": artifact, "key": str(workshop.key()[1])}
    names = {"one": [f"{spec}.sequence{buckets[-1]}"], "all": [spec]}
    found = {
        name: run_fresh(
            "rows.variants:resident", {**request, "variant": wanted}, store=workshop.store
        )
        for name, wanted in names.items()
    }
    one, all_bytes = (found[name]["bytes"] for name in ("one", "all"))
    slowest = found["all"]["seconds"] / found["one"]["seconds"]
    row = unjudged(
        f"BERT-base: memory with {len(buckets)} variants loaded and warm to one, weights {form}"
        f" (aim {MEMORY_AIM:g})",
        all_bytes / one,
        f"{all_bytes / 1e6:.0f} MB to {one / 1e6:.0f} MB; largest bucket {slowest:.2f} of its"
        " latency alone",
    )
    return row, {f"{form}, one": [one], f"{form}, all": [all_bytes]}


def resident(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: memory after the load and a run of every variant's own size."""
    import time

    import numpy as np

    import aotc

    ready = aotc.load(request["artifact"], key=request["key"], variant=request["variant"])
    sizes = sorted(variant.buckets["sequence"] for variant in ready.variants)
    seconds = []
    for size in sizes:
        given = {
            value.name: np.ones((1, size), np.int64) * (value.name != "token_type_ids")
            for value in ready.inputs
        }
        for _ in range(3):
            started = time.perf_counter()
            ready.run(given)
            seconds.append(time.perf_counter() - started)
    return {"bytes": float(proportional_bytes(os.getpid())), "seconds": median(seconds[-3:])}
