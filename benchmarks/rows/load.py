"""From the store to the first answer, compared with a plain session and its first run.

Each sample is a fresh process that has imported all modules before its clock starts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fresh import import_all, run_fresh
from benchmarks.result import Result, Row, at_most, milliseconds, ratio_of_medians, unjudged
from benchmarks.workshop import Workshop

# By model: the limits of the complete load, and of the session alone.
ASKED: Mapping[str, tuple[float, float]] = {"resnet50": (0.7, 0.2), "bert": (1.0, 0.6)}
ROUNDS = 9
NATIVE, PORTABLE = "native", "portable"


def run(workshop: Workshop) -> Result:
    """Measure plain, native, portable and first load alternately."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    modules = run_fresh(
        "rows.load:modules", _request(workshop, "resnet50", PORTABLE), store=workshop.store
    )
    for name, limits in ASKED.items():
        found = _measure(workshop, name, modules)
        samples |= {f"{name} {what}": values for what, values in found.items()}
        rows += _rows(workshop.model(name).title, found, limits)
    return Result(rows=tuple(rows), samples=samples)


def _measure(workshop: Workshop, name: str, modules: list[str]) -> dict[str, list[float]]:
    model = workshop.model(name)
    plain: dict[str, Any] = {"model": str(model.path), "sizes": dict(model.sizes), "name": name}
    plain |= {"smoke": workshop.smoke, "modules": modules}
    found: dict[str, list[float]] = {}
    # Round 0 fills the page cache and the store, and is not counted.
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"{model.title}, round {index}")
        for side in ("plain", NATIVE, PORTABLE, "first"):
            if side == "plain":
                seconds = run_fresh("rows.load:plain", plain)
            else:
                store = workshop.folder / "first-store" if side == "first" else workshop.store
                variant = NATIVE if side == "first" else side
                request = _request(workshop, name, variant) | {"modules": modules}
                seconds = run_fresh("rows.load:signed", request, store=store)
                if side == "first":
                    remove_store(store)
            if index:
                for what, value in seconds.items():
                    found.setdefault(f"{side} {what}", []).append(value)
    return found


def _request(workshop: Workshop, name: str, variant: str) -> dict[str, Any]:
    model = workshop.model(name)
    return {
        "artifact": str(workshop.artifact(name, "server-cpu")),
        "key": str(workshop.key()[1]),
        "variant": variant,
        "name": name,
        "smoke": workshop.smoke,
        "model": str(model.path),
        "modules": [],
    }


def _rows(title: str, found: Mapping[str, list[float]], limits: tuple[float, float]) -> list[Row]:
    def total_detail(side: str) -> str:
        ours, theirs = (median(found[f"{name} total"]) for name in (side, "plain"))
        parts = ", ".join(
            f"{part} {milliseconds(median(found[f'{side} {part}']))}"
            for part in ("verify", "session", "warm-up", "run")
        )
        return f"{milliseconds(ours)} to {milliseconds(theirs)}; {parts}"

    def session_detail(side: str) -> str:
        ours, theirs = (median(found[f"{name} session"]) for name in (side, "plain"))
        return f"{milliseconds(ours)} to {milliseconds(theirs)}"

    def ratio(side: str, what: str) -> float:
        return ratio_of_medians(found[f"{side} {what}"], found[f"plain {what}"])

    text = f"{title}: store to first answer"
    return [
        at_most(f"{text}, native variant", ratio(NATIVE, "total"), limits[0], total_detail(NATIVE)),
        unjudged(f"{text}, portable variant", ratio(PORTABLE, "total"), total_detail(PORTABLE)),
        unjudged(
            f"{text}, native, copied into the store", ratio("first", "total"), total_detail("first")
        ),
        at_most(
            f"{title}: session alone, native variant",
            ratio(NATIVE, "session"),
            limits[1],
            session_detail(NATIVE),
        ),
        unjudged(
            f"{title}: session alone, portable variant",
            ratio(PORTABLE, "session"),
            session_detail(PORTABLE),
        ),
    ]


def remove_store(store: Path) -> None:
    """Remove a store, whose folders are read-only."""
    for folder in (store, *(path for path in store.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    shutil.rmtree(store)


def modules(request: dict[str, Any]) -> list[str]:
    """In a fresh process: the modules that a load and a run import."""
    import sys

    signed(request)
    return [name for name in sys.modules if name != "__main__"]


def plain(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: a session with ONNX Runtime's defaults, and its first run."""
    import_all(request["modules"])
    return plain_times(request["model"], inputs(request))


def signed(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: load from the store, and the first run."""
    import_all(request["modules"])
    from aotc.providers.ort import import_onnxruntime

    import_onnxruntime()
    options = {name: request[name] for name in ("key", "variant")}
    return signed_times(request["artifact"], inputs(request), options)[0]


def plain_times(model: str, given: dict[str, Any]) -> dict[str, float]:
    """Seconds of a session with ONNX Runtime's defaults, and of its first run."""
    import onnxruntime as ort

    started = time.perf_counter()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    created = time.perf_counter()
    session.run(None, given)
    ended = time.perf_counter()
    return {"session": created - started, "run": ended - created, "total": ended - started}


def signed_times(
    artifact: str, given: dict[str, Any], options: dict[str, Any]
) -> tuple[dict[str, float], bool]:
    """Seconds of a load with `options` and of the first run; and whether digests were checked."""
    import aotc

    started = time.perf_counter()
    model = aotc.load(artifact, **options)
    loaded = time.perf_counter()
    model.run(given)
    ended = time.perf_counter()
    seconds = {
        "verify": model.report.verify_seconds,
        "session": model.report.session_seconds,
        "warm-up": model.report.warmup_seconds,
        "run": ended - loaded,
        "total": ended - started,
    }
    return seconds, model.report.hashed


def inputs(request: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the first run, by the name of the model."""
    from benchmarks.networks import models

    model = (models.SMOKE if request["smoke"] else models.FULL)[request["name"]]
    return model.at(Path(request["model"])).inputs()
