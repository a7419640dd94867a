"""A verified load with OpenVINO, compared with a plain session that compiles at load.

Each sample is a fresh process that has imported all modules before its clock starts; both sides
register the plugin within it.  The artifact is in the store, which a load verifies again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.compiled import OPENVINO, artifact, profile_fields
from benchmarks.fresh import import_all, run_fresh
from benchmarks.result import Result, Row, at_most, milliseconds, ratio_of_medians, unjudged
from benchmarks.workshop import Workshop

MODELS = ("resnet50", "densenet", "bert", "squeezenet")
ROUNDS = 9
LIMIT = 0.45


def run(workshop: Workshop) -> Result:
    """Measure both sides alternately, model by model."""
    found = {name: _measure(workshop, name) for name in MODELS}
    rows = _means(found)
    for name, seconds in found.items():
        ours, theirs = (median(seconds[side]) for side in ("load", "plain"))
        parts = ", ".join(
            f"{part} {milliseconds(median(seconds[part]))}"
            for part in ("verify", "session", "warm-up", "first run")
        )
        rows.append(
            unjudged(
                f"{workshop.model(name).title}: verified load to a session that compiles",
                ours / theirs,
                f"{milliseconds(ours)} to {milliseconds(theirs)}; {parts}",
            )
        )
    samples = {
        f"{name} {what}": s for name, by_what in found.items() for what, s in by_what.items()
    }
    return Result(rows=tuple(rows), samples=samples)


def _means(found: Mapping[str, Mapping[str, list[float]]]) -> list[Row]:
    def mean(ours: str, theirs: str) -> float:
        return geometric_mean(
            ratio_of_medians(samples[ours], samples[theirs]) for samples in found.values()
        )

    text = f"geometric mean over {len(found)} models"
    return [
        at_most(
            f"[openvino, cpu], f32: verified load to a session that compiles, {text}",
            mean("load", "plain"),
            LIMIT,
            "neither has run yet",
        ),
        unjudged(
            f"the same with the load's warm-up, {text}",
            mean("load, warm", "plain"),
            "the session has not run yet",
        ),
        unjudged(
            f"the same to the first answer, {text}",
            mean("load answered", "plain answered"),
            "the load has warmed up and accepted its fixtures before",
        ),
    ]


def _measure(workshop: Workshop, name: str) -> dict[str, list[float]]:
    model = workshop.model(name)
    fields = profile_fields(OPENVINO, dims=dict(model.sizes))
    request: dict[str, Any] = {
        "artifact": str(artifact(workshop, name, "openvino-f32", fields)),
        "key": str(workshop.key()[1]),
        "model": str(model.path),
        "sizes": dict(model.sizes),
        "modules": [],
    }
    request["modules"] = run_fresh("rows.openvino_load:modules", request, store=workshop.store)
    found: dict[str, list[float]] = {}
    # Round 0 fills the page cache and the store, and is not counted.
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"{model.title}, round {index}")
        for side in ("plain", "signed"):
            seconds = run_fresh(f"rows.openvino_load:{side}", request, store=workshop.store)
            for what, value in seconds.items() if index else ():
                found.setdefault(what, []).append(value)
    return found


def modules(request: dict[str, Any]) -> list[str]:
    """In a fresh process: the modules that a load and a run import."""
    import sys

    import onnxruntime_ep_openvino  # noqa: F401

    signed(request)
    return [name for name in sys.modules if name != "__main__"]


def plain(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: a session with the plugin, and its first run."""
    import_all(request["modules"])
    from benchmarks.contenders import inputs_at, plugin_session

    inputs = inputs_at(Path(request["model"]), request["sizes"])
    started = time.perf_counter()
    session = plugin_session(request["model"], "f32", request["sizes"])
    created = time.perf_counter()
    session.run(None, inputs)
    return {"plain": created - started, "plain answered": time.perf_counter() - started}


def signed(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: load from the store, and the first run."""
    import_all(request["modules"])
    import aotc
    from aotc.providers.ort import import_onnxruntime
    from benchmarks.contenders import inputs_at

    import_onnxruntime()
    inputs = inputs_at(Path(request["model"]), request["sizes"])
    started = time.perf_counter()
    model = aotc.load(request["artifact"], key=request["key"], warm_up=False)
    loaded = time.perf_counter()
    model.warm()
    warm = time.perf_counter()
    model.run(inputs)
    ended = time.perf_counter()
    return {
        "load": loaded - started,
        "load, warm": warm - started,
        "load answered": ended - started,
        "verify": model.report.verify_seconds,
        "session": model.report.session_seconds,
        "warm-up": warm - loaded,
        "first run": ended - warm,
    }
