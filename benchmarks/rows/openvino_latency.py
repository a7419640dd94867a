"""Latency with OpenVINO, compared with OpenVINO's own API and ONNX Runtime's CPU session.

Every side is a process of its own with all cores; sizes are fixed on all sides.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.compiled import OPENVINO, BuildRefusedError, artifact, profile_fields
from benchmarks.contenders import artifact_spec, openvino_spec, plain_spec
from benchmarks.result import Result, Row, milliseconds, paired_interval
from benchmarks.sides import Spec, answer_difference, by_turns
from benchmarks.workshop import Workshop

ROUNDS = {"resnet50": 60, "densenet": 60, "bert": 40, "squeezenet": 100}
WARM_UP = 5
OWN_LIMIT = 1.05
# With bfloat16 allowed; SqueezeNet has too little work for it to matter.
PLAIN_LIMIT = 0.4
PLAIN_MODELS = ("resnet50", "densenet", "bert")
# A share of the maximum value: the same arithmetic, in another order.
SAME = 1e-4
LABELS = {"keep": "f32", "bfloat16": "bf16"}


def run(workshop: Workshop) -> Result:
    """Measure both precisions of both, and the plain session, alternately."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name in ROUNDS:
        specs, refusals = _specs(workshop, name)
        workshop.progress(f"{workshop.model(name).title}, {ROUNDS[name]} rounds")
        answers = workshop.folder / "answers"
        shutil.rmtree(answers, ignore_errors=True)
        found = by_turns(
            specs,
            [[dict(workshop.model(name).sizes)]] * (WARM_UP + workshop.rounds(ROUNDS[name])),
            warm_up=WARM_UP,
            store=workshop.store,
            answers=answers,
        )
        samples |= {f"{name} {side}": seconds for side, seconds in found.items()}
        rows += _rows(workshop, name, found, refusals, answers)
    return Result(rows=tuple(rows), samples=samples)


def _specs(workshop: Workshop, name: str) -> tuple[dict[str, Spec], dict[str, str]]:
    """The specs by side; and refused builds, by precision."""
    model, public = workshop.model(name), workshop.key()[1]
    specs = {side: plain_spec(model.path) for side in ("plain", "plain again")}
    refusals: dict[str, str] = {}
    for precision, label in LABELS.items():
        fields = profile_fields(OPENVINO, precision=precision, dims=dict(model.sizes))
        try:
            place = artifact(workshop, name, f"openvino-{label}", fields)
        except BuildRefusedError as refused:
            refusals[precision] = str(refused)
            continue
        specs[f"artifact {label}"] = artifact_spec(place, public, model.path)
        specs[f"own {label}"] = openvino_spec(model.path, precision, model.sizes)
    return specs, refusals


def _rows(
    workshop: Workshop,
    name: str,
    found: Mapping[str, list[float]],
    refusals: Mapping[str, str],
    answers: Path,
) -> list[Row]:
    title = workshop.model(name).title
    _, low, high = paired_interval(found["plain again"], found["plain"])
    noise = f"noise of the run ± {max(high - 1.0, 1.0 - low):.3f}"
    rows = []
    for precision, label in LABELS.items():
        text = f"{title}, {label}: latency of [openvino, cpu]"
        if precision in refusals:
            rows.append(Row(what=text, measured=f"not built: {refusals[precision]}"))
            continue
        ours = found[f"artifact {label}"]
        error = answer_difference(answers, f"artifact {label}", f"own {label}")
        if precision == "keep" and error > SAME:
            raise RuntimeError(f"{title}: answers differ by {error:g} from OpenVINO's own")
        same = f"{noise}; answers differ by {error:.0e}"
        limit = OWN_LIMIT if precision == "keep" else None
        rows.append(_row(f"{text} to OpenVINO's own API", ours, found[f"own {label}"], limit, same))
        fast = precision == "bfloat16" and name in PLAIN_MODELS
        limit = PLAIN_LIMIT if fast else None
        rows.append(_row(f"{text} to a plain CPU session", ours, found["plain"], limit, noise))
    return rows


def _row(
    what: str, ours: list[float], theirs: list[float], limit: float | None, detail: str
) -> Row:
    ratio, low, high = paired_interval(ours, theirs)
    times = f"{milliseconds(median(ours))} to {milliseconds(median(theirs))}"
    return Row(
        what=what,
        asked=f"≤ {limit:g}" if limit is not None else "",
        measured=f"{ratio:.3f} ({times}; 95 % {low:.3f} to {high:.3f}; {detail})",
        held=round(ratio, 3) <= limit if limit is not None else None,
    )
