"""Varying lengths with OpenVINO: the learned plan compared with the simple ones, on BERT-base.

Batch 1, lengths from 1 to 512, log-normal with median 64.  The learner measures the cost of a
length with the profile's providers, in each precision.  Every plan is an artifact in its own
process; in each round all of them handle the same requests, which no round repeats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

import yaml

from benchmarks.compiled import OPENVINO, artifact, profile_fields
from benchmarks.contenders import PROVIDER, artifact_spec
from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row, at_least, at_most, paired_interval, unjudged
from benchmarks.rows.plans import SEED, lengths
from benchmarks.sides import by_turns
from benchmarks.workshop import Workshop

REQUESTS, ROUNDS = 40, 4
RECORDED, LEARN_SECONDS = 4000, 60
MIDDLE, SIGMA = 64, 0.7
MAX_VARIANTS = 8
DYNAMIC_LIMIT, LARGEST_LIMIT, BEST_LIMIT = 1.3, 3.0, 1.03
LEARNED, DYNAMIC, LARGEST = "learned", "one exact dynamic model", "padded to the largest"
LABELS = {"bfloat16": "bf16", "keep": "f32"}


def run(workshop: Workshop) -> Result:
    """In each precision: learn, build all plans, and run the same requests."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for precision, label in LABELS.items():
        found, answer = _measure(workshop, precision, label)
        rows += _rows(label, found, answer)
        samples |= {f"{label} {name}": seconds for name, seconds in found.items()}
    return Result(rows=tuple(rows), samples=samples)


def _measure(
    workshop: Workshop, precision: str, label: str
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    highest = 64 if workshop.smoke else 512
    fields = profile_fields(OPENVINO, precision=precision)
    answer = _learn_plan(workshop, precision, label, highest)
    dims = {LEARNED: answer["dims"]} | {
        name: {"batch": 1, "sequence": dim} for name, dim in _simple_dims(highest).items()
    }
    model, public = workshop.model("bert"), workshop.key()[1]
    specs = {}
    for name, ranges in dims.items():
        stem = f"lengths-{label}-{name.replace(' ', '-').replace(',', '')}"
        place = artifact(workshop, "bert", stem, {**fields, "dims": ranges})
        specs[name] = artifact_spec(place, public, model.path)
    requests = 8 if workshop.smoke else REQUESTS
    rounds = [
        [{"batch": 1, "sequence": size} for size in _drawn_lengths(requests, highest, turn + 1)]
        for turn in range(workshop.rounds(ROUNDS) + 1)
    ]
    workshop.progress(f"{label}: {len(rounds)} rounds of {requests} requests through each plan")
    return by_turns(specs, rounds, warm_up=1, store=workshop.store, streams=True), answer


def _simple_dims(highest: int) -> dict[str, dict[str, Any]]:
    powers = [size for size in (4, 8, 16, 32, 64, 128, 256, 512) if size <= highest]
    dynamic = {"min": 1, "opt": min(MIDDLE, highest), "max": highest}
    return {
        DYNAMIC: dynamic,
        "dynamic, padded to multiples of 16": {**dynamic, "multiple_of": 16, "outside": "pad"},
        f"{len(powers)} powers of two": {"buckets": powers, "outside": "pad"},
        LARGEST: {"buckets": [highest], "outside": "pad"},
    }


def _drawn_lengths(count: int, highest: int, seed: int) -> list[int]:
    drawn = lengths(count, SEED + seed, middle=MIDDLE, sigma=SIGMA)
    return [min(size, highest) for size in drawn]


def _learn_plan(workshop: Workshop, precision: str, label: str, highest: int) -> dict[str, Any]:
    traffic = workshop.folder / "openvino-traffic.jsonl"
    sizes = _drawn_lengths(RECORDED, highest, 0)
    traffic.write_text("\n".join(json.dumps({"batch": 1, "sequence": size}) for size in sizes))
    workshop.progress(f"learn a plan, {label}")
    request = {
        "traffic": str(traffic),
        "model": str(workshop.model("bert").path),
        "profile": str(
            workshop.profile(f"lengths-{label}", profile_fields(OPENVINO, precision=precision))
        ),
        "seconds": 2 if workshop.smoke else LEARN_SECONDS,
    }
    answer: dict[str, Any] = run_fresh("rows.openvino_lengths:learn", request)
    return answer


def learn(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: the learned dims, and the learner's verdict."""
    import aotc
    from aotc.spec.yaml import yaml_text

    answer = aotc.profile_learn(
        request["traffic"],
        model=request["model"],
        profile=request["profile"],
        seconds=request["seconds"],
        max_variants=MAX_VARIANTS,
    )
    if PROVIDER not in answer.backend:
        raise RuntimeError(f"the costs were measured with {answer.backend}")
    dims = yaml.safe_load(yaml_text(answer.profile, full=False))["dims"]
    return {"verdict": answer.verdict, "dims": dims}


def _rows(label: str, found: Mapping[str, list[float]], answer: Mapping[str, Any]) -> list[Row]:
    simple = [name for name in found if name != LEARNED]
    best = min(simple, key=lambda name: median(found[name]))
    text = f"BERT-base, {label}, log-normal lengths: throughput of the learned plan"
    chosen = f"{answer['verdict']}; sequence {json.dumps(answer['dims']['sequence'])}"
    dynamic, largest = (_times(found, name) for name in (DYNAMIC, LARGEST))
    within = paired_interval(found[LEARNED], found[best])[0]
    return [
        at_least(f"{text} to {DYNAMIC}", dynamic, DYNAMIC_LIMIT, chosen),
        at_least(f"{text} to {LARGEST}", largest, LARGEST_LIMIT, ""),
        at_most(f"{text}: its time to the best simple plan", within, BEST_LIMIT, best),
        *(
            unjudged(f"{text} to {name}", _times(found, name), "")
            for name in simple
            if name not in (DYNAMIC, LARGEST)
        ),
    ]


def _times(found: Mapping[str, list[float]], name: str) -> float:
    return paired_interval(found[name], found[LEARNED])[0]
