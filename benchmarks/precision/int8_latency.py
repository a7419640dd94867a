"""Static int8 on the CPU provider against the plain float32 session: throughput, and bytes on disk.

Both run the same requests alternately, each in its own process.  Activations are observed on
generated inputs: random weights have no better ones.  Limits are for CPUs with VNNI, which multiply
8-bit integers four at a time; on others the ratios are only told.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.compiled import BuildRefusedError, artifact
from benchmarks.contenders import artifact_spec, inputs_at, plain_spec
from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row, at_most, milliseconds, paired_interval
from benchmarks.sides import answer_difference, by_turns
from benchmarks.workshop import Workshop

ROUNDS = {"bert": 20, "resnet50_17": 30}
SPEEDUPS = {"bert": 2.5, "resnet50_17": 1.7}
LARGEST_SHARE = 0.3
# Requests of a round, in a row.
REQUESTS = 5
WARM_UP = 2
SAMPLES = 8
PRECISION = {"precision": "int8", "quantization": {"form": "static"}}


def run(workshop: Workshop) -> Result:
    """Model by model: throughput of both sides, and the size of the artifact."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    feature = run_fresh("precision.int8_latency:exact_integers", {})["feature"]
    for name, rounds in ROUNDS.items():
        model = workshop.model(name)
        try:
            place = artifact(workshop, name, "int8", int8_fields(workshop, name))
        except BuildRefusedError as refusal:
            rows.append(Row(what=f"{model.title}, int8", measured=str(refusal), held=False))
            continue
        workshop.progress(f"{model.title}, {rounds} rounds")
        answers = workshop.folder / "answers" / f"int8-{name}"
        found = by_turns(
            {
                "int8": artifact_spec(place, workshop.key()[1], model.path),
                "float32": plain_spec(model.path),
            },
            [[dict(model.sizes)] * REQUESTS] * (WARM_UP + workshop.rounds(rounds)),
            warm_up=WARM_UP,
            store=workshop.store,
            answers=answers,
            streams=True,
        )
        samples |= {f"{name} {side}": seconds for side, seconds in found.items()}
        difference = answer_difference(answers, "int8", "float32")
        rows.append(_speedup(name, model.title, found, feature, place, difference))
        what = f"{model.title}: the int8 artifact's payload to the model"
        rows.append(size_row(what, place, model.path, LARGEST_SHARE))
    return Result(rows=tuple(rows), samples=samples)


def int8_fields(workshop: Workshop, name: str, **fields: Any) -> dict[str, Any]:
    """A profile for static int8 at the sizes that are timed, with generated calibration data."""
    model = workshop.model(name)
    data = workshop.folder / "calibration" / f"{model.folder}.npz"
    if not data.exists():
        data.parent.mkdir(parents=True, exist_ok=True)
        np.savez(data, **_calibration_samples(model.path, dict(model.sizes)))
    return {
        **PRECISION,
        "calibration": {"data": str(data)},
        "dims": dict(model.sizes),
        "parity": {"random_shapes": 0},
        **fields,
    }


def _calibration_samples(model: Path, sizes: dict[str, int]) -> dict[str, Any]:
    """Inputs with `SAMPLES` entries along their first axis; floats and ids differ."""
    generator = np.random.default_rng(1)
    found = {}
    for name, value in inputs_at(model, sizes).items():
        shape = (SAMPLES, *value.shape[1:])
        if value.dtype.kind == "f":
            found[name] = generator.standard_normal(shape).astype(value.dtype)
        elif len(np.unique(value)) > 1:
            found[name] = generator.integers(0, int(value.max()) + 1, shape, value.dtype)
        else:
            found[name] = np.broadcast_to(value[:1], shape).copy()
    return found


def exact_integers(_: Any) -> dict[str, str]:
    """In a fresh process: the feature with which this CPU adds products of 8 bits exactly."""
    from aotc.graph.passes.same_sign_weights import exact_feature
    from aotc.host.probe import probe

    return {"feature": exact_feature(probe(gpus=False).isa)}


def _speedup(
    name: str,
    title: str,
    found: dict[str, list[float]],
    feature: str,
    place: Path,
    difference: float,
) -> Row:
    ratio, low, high = paired_interval(found["float32"], found["int8"])
    times = ", ".join(
        f"{side} {milliseconds(median(seconds) / REQUESTS)}" for side, seconds in found.items()
    )
    limit = SPEEDUPS[name]
    detail = (
        f"{ratio:.3f} ({times}; 95 % {low:.3f} to {high:.3f}; variants {_variants(place)}; "
        f"answers differ by {difference:.1%} of the largest)"
    )
    if not feature:
        detail += f"; this CPU has no VNNI, for which the limit of {limit:g} is"
    return Row(
        what=f"{title}: throughput of static int8 to the plain float32 session",
        asked=f"≥ {limit:g}" if feature else "",
        measured=detail,
        held=round(ratio, 3) >= limit if feature else None,
    )


def _variants(place: Path) -> str:
    manifest = json.loads((place / "payload" / "aotc.json").read_bytes())
    return " and ".join(str(variant["name"]) for variant in manifest["variants"])


def size_row(what: str, place: Path, model: Path, limit: float) -> Row:
    """Bytes of the artifact's payload to those of the model's folder."""
    ours = sum(file.stat().st_size for file in (place / "payload").rglob("*") if file.is_file())
    theirs = sum(file.stat().st_size for file in model.parent.iterdir() if file.is_file())
    return at_most(what, ours / theirs, limit, f"{ours / 1e6:.1f} MB to {theirs / 1e6:.1f} MB")
