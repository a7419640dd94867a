"""Steady latency of each variant compared with the plain session, alternately in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row, milliseconds, paired_interval
from benchmarks.rows.load import NATIVE, PORTABLE
from benchmarks.workshop import Workshop

ROUNDS = {"resnet50": 60, "bert": 40}
WARM_UP = 3
# ONNX Runtime's threads spin for a while after a run, and would disturb the next session.
PAUSE_SECONDS = 0.03


def run(workshop: Workshop) -> Result:
    """A second plain session shows the noise of the run: how much equal sides differ."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name, rounds in ROUNDS.items():
        model = workshop.model(name)
        workshop.progress(f"{model.title}, {rounds} rounds")
        request = {
            "name": name,
            "model": str(model.path),
            "smoke": workshop.smoke,
            "artifact": str(workshop.artifact(name, "server-cpu")),
            "key": str(workshop.key()[1]),
            "rounds": workshop.rounds(rounds),
        }
        found = run_fresh("rows.latency:by_turns", request, store=workshop.store)
        samples |= {f"{name} {side}": seconds for side, seconds in found.items()}
        rows += _rows(model.title, found)
    return Result(rows=tuple(rows), samples=samples)


def _rows(title: str, found: dict[str, list[float]]) -> list[Row]:
    same, low, high = paired_interval(found["plain again"], found["plain"])
    noise = max(high - 1.0, 1.0 - low)
    rows = [
        Row(
            what=f"{title}: steady latency, plain to plain",
            measured=f"{same:.3f} (noise of the run: ± {noise:.3f})",
        )
    ]
    for side in (NATIVE, PORTABLE):
        ratio, low, high = paired_interval(found[side], found["plain"])
        ours, theirs = median(found[side]), median(found["plain"])
        rows.append(
            Row(
                what=f"{title}: steady latency, {side} variant",
                asked="≤ 1, within the noise",
                measured=f"{ratio:.3f} ({milliseconds(ours)} to {milliseconds(theirs)};"
                f" 95 % {low:.3f} to {high:.3f})",
                held=ratio <= 1.0 + noise,
            )
        )
    return rows


def by_turns(request: dict[str, Any]) -> dict[str, list[float]]:
    """In a fresh process: seconds of each round, every side once per round in random order."""
    import onnxruntime as ort

    import aotc
    from benchmarks.networks import models

    model = (models.SMOKE if request["smoke"] else models.FULL)[request["name"]]
    inputs = model.at(Path(request["model"])).inputs()
    sides: dict[str, Callable[[], object]] = {}
    for side in ("plain", "plain again"):
        session = ort.InferenceSession(request["model"], providers=["CPUExecutionProvider"])
        sides[side] = partial(session.run, None, inputs)
    for side in (NATIVE, PORTABLE):
        ready = aotc.load(request["artifact"], key=request["key"], variant=side)
        sides[side] = partial(ready.run, inputs)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides)
    shuffle = random.Random(0).shuffle
    for index in range(request["rounds"] + WARM_UP):
        shuffle(order)
        for side in order:
            time.sleep(PAUSE_SECONDS)
            started = time.perf_counter()
            sides[side]()
            if index >= WARM_UP:
                seconds[side].append(time.perf_counter() - started)
    return seconds
