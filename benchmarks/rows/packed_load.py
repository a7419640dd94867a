"""Verifying and loading a packed artifact, compared with the same artifact in a folder.

Each sample is a fresh process that has imported all modules before its clock starts.  The first
load is into an empty store; the second finds the artifact in the store.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.fresh import import_all, run_fresh
from benchmarks.result import Result, Row, at_most, milliseconds, ratio_of_medians
from benchmarks.rows.load import remove_store
from benchmarks.workshop import Workshop

MODELS = ("resnet50", "bert", "squeezenet")
ROUNDS = 9
LIMIT = 1.1
FOLDER, PACKED = "folder", "packed"
FIRST, AGAIN = "verify, and load into an empty store", "verify, and load what the store has"


def run(workshop: Workshop) -> Result:
    """Measure folder and packed artifact alternately, for each model."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    imported: list[str] | None = None
    for name in MODELS:
        artifact = workshop.artifact(name, "server-cpu" if name != "squeezenet" else "edge")
        request: dict[str, Any] = {
            "key": str(workshop.key()[1]),
            "name": name,
            "smoke": workshop.smoke,
            "model": str(workshop.model(name).path),
            "modules": [],
            "variant": None,
        }
        if imported is None:
            plain = {**request, "artifact": str(artifact)}
            imported = run_fresh("rows.load:modules", plain, store=workshop.store)
        request["modules"] = imported
        sides = {FOLDER: artifact, PACKED: _packed(artifact, workshop.folder / "packed")}
        found = _measure(workshop, request, sides)
        samples |= {f"{name} {what}": seconds for what, seconds in found.items()}
        rows += _rows(workshop.model(name).title, found)
    for what in (FIRST, AGAIN):
        ratios = [
            ratio_of_medians(samples[f"{name} {PACKED} {what}"], samples[f"{name} {FOLDER} {what}"])
            for name in MODELS
        ]
        rows.append(
            at_most(f"Packed to folder, geometric mean: {what}", geometric_mean(ratios), LIMIT, "")
        )
    return Result(rows=tuple(rows), samples=samples)


def _packed(artifact: Path, folder: Path) -> Path:
    from aotc.trust.packing import pack

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / f"{artifact.stem}.zip"
    pack(artifact, path)
    return path


def _measure(
    workshop: Workshop, request: dict[str, Any], sides: dict[str, Path]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"{workshop.model(request['name']).title}, round {index}")
        for side, path in sides.items():
            store = workshop.folder / "packed-store"
            for what in (FIRST, AGAIN):
                seconds = run_fresh(
                    "rows.packed_load:signed", {**request, "artifact": str(path)}, store=store
                )
                if index:
                    found.setdefault(f"{side} {what}", []).append(seconds)
            remove_store(store)
    return found


def signed(request: dict[str, Any]) -> float:
    """In a fresh process: seconds of verify, and of a load to the first answer."""
    import_all(request["modules"])
    import aotc
    from aotc.providers.ort import import_onnxruntime
    from benchmarks.rows.load import inputs

    import_onnxruntime()
    given = inputs(request)
    started = time.perf_counter()
    if not aotc.verify(request["artifact"], key=request["key"]).authentic:
        raise RuntimeError("the artifact is refused")
    aotc.load(request["artifact"], key=request["key"]).run(given)
    return time.perf_counter() - started


def _rows(title: str, found: dict[str, list[float]]) -> list[Row]:
    rows = []
    for what in (FIRST, AGAIN):
        ours, theirs = (found[f"{side} {what}"] for side in (PACKED, FOLDER))
        detail = " to ".join(milliseconds(median(seconds)) for seconds in (ours, theirs))
        rows.append(
            at_most(
                f"{title}, packed to folder: {what}", ratio_of_medians(ours, theirs), LIMIT, detail
            )
        )
    return rows
