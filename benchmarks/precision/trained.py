"""What each form of lower precision costs two trained networks, on data that was not trained on.

Both lie in `tests/data/trained` and are written by `benchmarks.networks.trained`: a classifier of
text by accuracy, a detector by mean average precision.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.fresh import ROOT, run_fresh
from benchmarks.precision import mean_precision, tasks
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

FOLDER: Final = ROOT / "tests" / "data" / "trained"
# In points, of 100.
LARGEST_DROP: Final = 1.0
FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "int8 static": {"precision": "int8", "quantization": {"form": "static"}},
    "int8 dynamic": {"precision": "int8", "quantization": {"form": "dynamic"}},
    "int8 weights": {"precision": "int8", "quantization": {"form": "weights"}},
    "int4": {"precision": "int4"},
    "auto": {"precision": "auto"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A network, the data of a use as its input and the labels, and the metric that judges it.

    `outputs` are limits of outputs beside the metric.
    """

    title: str
    value: str
    data: Callable[[tasks.Use], tuple[Any, Any]]
    metric: str
    outputs: Mapping[str, Any] = field(default_factory=dict)


NETWORKS: Final[Mapping[str, Trained]] = {
    "pieces": Trained(
        title="Languages of text", value="text", data=tasks.pieces, metric="accuracy"
    ),
    "scenes": Trained(
        title="Digits in scenes",
        value="image",
        data=lambda use: tasks.scenes(use, 400 if use == "judge" else 128),
        metric="mean_precision:score",
        # The scores of a digit that an image does not have are next to nothing, and no share of
        # them is kept in 8 bits.
        outputs={"found": {"min_cosine": 0.99, "replaces_tolerance": True}},
    ),
}


def fields(name: str, form: str, folder: Path, max_drop: float) -> dict[str, Any]:
    """Fields of a profile in `folder`, where data and metric are put."""
    network = NETWORKS[name]
    samples, _ = network.data("calibrate")
    np.savez(folder / f"{name}-calibration.npz", **{network.value: samples})
    samples, labels = network.data("judge")
    np.savez(folder / f"{name}-judged.npz", **{network.value: samples, "label": labels})
    shutil.copy(mean_precision.__file__, folder)
    task = {
        "data": f"{name}-judged.npz",
        "metric": network.metric,
        "max_drop": max_drop,
    }
    gates = {"task": task, "outputs": network.outputs}
    found: dict[str, Any] = {**FORMS[form], "gates": gates, "dims": {"batch": "1..64"}}
    if form in ("int8 static", "auto"):
        found["calibration"] = {"data": f"{name}-calibration.npz"}
    return found


def run(workshop: Workshop) -> Result:
    """A build for each network and form."""
    rows = []
    folder = workshop.folder / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    for name, network in NETWORKS.items():
        for form in list(FORMS)[: 1 if workshop.smoke else None]:
            profile = workshop.profile(
                f"{name}-{form.replace(' ', '-')}", fields(name, form, folder, 1.0)
            )
            request = {
                "model": str(FOLDER / f"{name}.onnx"),
                "profile": str(profile),
                "key": str(workshop.key()[0]),
                "output": str(folder / f"{profile.stem}.aotc"),
            }
            found = run_fresh("precision.trained:judged", request, store=workshop.store)
            rows.append(_row(f"{network.title}: points that {form} loses", found))
    return Result(rows=tuple(rows))


def judged(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: build, and the metric of both sides, or the refusal."""
    import aotc
    from aotc.base.errors import AotcError

    try:
        report = aotc.build(
            request["model"],
            profile=request["profile"],
            key=request["key"],
            output=request["output"],
            force=True,
            cache=False,
        )
    except AotcError as error:
        return {"refused": str(error)}
    task = report.variants[0].task
    assert task is not None
    return {"refused": "", "original": task.original, "variant": task.variant}


def _row(what: str, found: Mapping[str, Any]) -> Row:
    asked = f"≤ {LARGEST_DROP:g}"
    if found["refused"]:
        return Row(what=what, asked=asked, measured=f"refused: {found['refused']}", held=False)
    drop = round(100 * (found["original"] - found["variant"]), 2)
    return Row(
        what=what,
        asked=asked,
        measured=f"{drop:.2f} ({100 * found['original']:.2f} to {100 * found['variant']:.2f})",
        held=drop <= LARGEST_DROP,
    )
