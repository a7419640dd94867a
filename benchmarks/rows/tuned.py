"""The choice of `--tune` in f32, compared with the better one of its two candidates.

The candidates are OpenVINO with the CPU for the remaining nodes, and the CPU provider alone.  They
are timed again here, each in its own process, together with the tuned artifact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.compiled import OPENVINO, artifact, profile_fields
from benchmarks.contenders import artifact_spec
from benchmarks.result import Result, Row, milliseconds, paired_interval
from benchmarks.sides import by_turns
from benchmarks.workshop import Workshop

ROUNDS = {"resnet50": 60, "densenet": 60, "bert": 40, "squeezenet": 100}
WARM_UP = 5
LIMIT = 1.05
TUNED = "tuned"
ALONE = {"openvino": ["openvino", "cpu"], "cpu": ["cpu"]}


def run(workshop: Workshop) -> Result:
    """Model by model: measure the tuned artifact and both candidates alternately."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name, rounds in ROUNDS.items():
        model, public = workshop.model(name), workshop.key()[1]
        fields = profile_fields(OPENVINO, dims=dict(model.sizes))
        places = {
            side: artifact(workshop, name, f"alone-{side}", {**fields, "providers": providers})
            for side, providers in ALONE.items()
        }
        places[TUNED] = artifact(workshop, name, "tuned", fields, tune=True)
        workshop.progress(f"{model.title}, {rounds} rounds")
        found = by_turns(
            {side: artifact_spec(place, public, model.path) for side, place in places.items()},
            [[dict(model.sizes)]] * (WARM_UP + workshop.rounds(rounds)),
            warm_up=WARM_UP,
            store=workshop.store,
        )
        samples |= {f"{name} {side}": seconds for side, seconds in found.items()}
        rows.append(_row(model.title, found, places[TUNED]))
    return Result(rows=tuple(rows), samples=samples)


def _row(title: str, found: Mapping[str, list[float]], tuned: Path) -> Row:
    better = min(ALONE, key=lambda side: median(found[side]))
    ratio, low, high = paired_interval(found[TUNED], found[better])
    times = ", ".join(f"{side} {milliseconds(median(seconds))}" for side, seconds in found.items())
    chosen = " ".join(_providers(tuned))
    return Row(
        what=f"{title}, f32: the tuned artifact to the better of openvino and cpu",
        asked=f"≤ {LIMIT:g}",
        measured=f"{ratio:.3f} to {better} ({times}; 95 % {low:.3f} to {high:.3f}; "
        f"chosen: {chosen})",
        held=round(ratio, 3) <= LIMIT,
    )


def _providers(tuned: Path) -> list[str]:
    """ONNX Runtime's names of the providers of the artifact's only variant."""
    manifest = json.loads((tuned / "payload" / "aotc.json").read_bytes())
    (variant,) = manifest["variants"]
    return [str(provider) for provider in variant["providers"]]
