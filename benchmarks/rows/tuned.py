"""What `--tune` chose in f32, against the better of the two that it chose from.

The candidates are OpenVINO with the CPU for the rest, and the CPU provider alone.  They are timed
anew here, each in a process of its own, and the tuned artifact beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.compiled import OPENVINO, artifact, built_in
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
    """Model by model: the tuned artifact and both candidates by turns."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name, most in ROUNDS.items():
        model, public = workshop.model(name), workshop.key()[1]
        fields = built_in(OPENVINO, dims=dict(model.sizes))
        places = {
            side: artifact(workshop, name, f"alone-{side}", {**fields, "providers": providers})
            for side, providers in ALONE.items()
        }
        places[TUNED] = artifact(workshop, name, "tuned", fields, tune=True)
        workshop.progress(f"{model.title}, {most} rounds")
        found = by_turns(
            {side: artifact_spec(place, public, model.path) for side, place in places.items()},
            [[dict(model.sizes)]] * (WARM_UP + workshop.rounds(most)),
            warm_up=WARM_UP,
            store=workshop.store,
        )
        samples |= {f"{name} {side}": seconds for side, seconds in found.items()}
        rows.append(_row(model.title, found, places[TUNED]))
    return Result(rows=tuple(rows), samples=samples)


def _row(title: str, found: Mapping[str, list[float]], tuned: Path) -> Row:
    better = min(ALONE, key=lambda side: median(found[side]))
    ratio, low, high = paired_interval(found[TUNED], found[better])
    times = ", ".join(f"{side} {milliseconds(median(each))}" for side, each in found.items())
    chosen = " ".join(_providers(tuned))
    return Row(
        what=f"{title}, f32: the tuned artifact to the better of openvino and cpu",
        asked=f"≤ {LIMIT:g}",
        measured=f"{ratio:.3f} to {better} ({times}; 95 % {low:.3f} to {high:.3f}; "
        f"chosen: {chosen})",
        held=round(ratio, 3) <= LIMIT,
    )


def _providers(tuned: Path) -> list[str]:
    """ONNX Runtime's names of the providers of the artifact's one variant."""
    manifest = json.loads((tuned / "payload" / "aotc.json").read_bytes())
    (variant,) = manifest["variants"]
    return [str(each) for each in variant["providers"]]
