"""Plans for log-normal traffic on BERT-base: the learned one and the usual ones, really run.

Lengths from 1 to 512, with a median of about 40, batch 1, on the CPU provider.  Each plan is an
artifact; the same requests go through all of them alternately.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh import ROOT, run_fresh
from benchmarks.result import Result, Row, at_most, unjudged
from benchmarks.rows.latency import PAUSE_SECONDS
from benchmarks.workshop import Workshop

REQUESTS, ROUNDS = 40, 3
RECORDED = 4000
MAX_VARIANTS = 8
LIMIT = 1.03
SEED = 20261121
LEARNED = "learned"


def lengths(count: int, seed: int = SEED, *, middle: float = 40, sigma: float = 0.9) -> list[int]:
    """Log-normal lengths with median `middle`, limited to 1..512."""
    drawn = np.exp(np.random.default_rng(seed).normal(np.log(middle), sigma, count))
    return [int(length) for length in np.clip(np.round(drawn), 1, 512)]


def run(workshop: Workshop) -> Result:
    """Learn a plan, build all plans, and run the same requests through each."""
    highest = 64 if workshop.smoke else 512
    traffic = workshop.folder / "traffic.jsonl"
    lines = (
        json.dumps({"batch": 1, "sequence": min(length, highest)}) for length in lengths(RECORDED)
    )
    traffic.write_text("\n".join(lines))
    learned = workshop.folder / "profiles" / "learned.yaml"
    learned.parent.mkdir(parents=True, exist_ok=True)
    workshop.progress("learn a plan")
    answer = run_fresh(
        "rows.plans:learn",
        {
            "traffic": str(traffic),
            "model": str(workshop.model("bert").path),
            "seconds": 2 if workshop.smoke else 60,
            "output": str(learned),
        },
    )
    profiles = {LEARNED: learned}
    powers = [size for size in (4, 8, 16, 32, 64, 128, 256, 512) if size <= highest]
    for name, dim in (
        ("one dynamic variant", {"min": 1, "opt": 40, "max": highest}),
        (
            "dynamic, padded to multiples of 16",
            {"min": 1, "max": highest, "multiple_of": 16, "outside": "pad"},
        ),
        (f"{len(powers)} powers of two", {"buckets": powers, "outside": "pad"}),
        ("padded to the largest", {"buckets": [highest], "outside": "pad"}),
    ):
        stem = name.replace(" ", "-").replace(",", "")
        profiles[name] = workshop.profile(f"plan-{stem}", {"dims": {"batch": 1, "sequence": dim}})
    artifacts = {name: str(_built(workshop, name, path)) for name, path in profiles.items()}
    workshop.progress(f"run {REQUESTS} requests {ROUNDS} times through each plan")
    found = run_fresh(
        "rows.plans:by_turns",
        {
            "artifacts": artifacts,
            "key": str(workshop.key()[1]),
            "lengths": [min(length, highest) for length in lengths(REQUESTS, SEED + 1)],
            "rounds": workshop.rounds(ROUNDS),
        },
        store=workshop.store,
    )
    return Result(rows=tuple(_rows(found, answer)), samples=found)


def _rows(found: dict[str, list[float]], answer: dict[str, Any]) -> list[Row]:
    totals = {name: float(np.median(seconds)) for name, seconds in found.items()}
    best = min(seconds for name, seconds in totals.items() if name != LEARNED)
    rows = [
        at_most(
            f"BERT-base, log-normal lengths: {LEARNED} plan to the best of the others",
            totals[LEARNED] / best,
            LIMIT,
            answer["verdict"],
        )
    ]
    rows += [
        unjudged(
            f"BERT-base, log-normal lengths: {name} to the best",
            seconds / best,
            f"{seconds / answer['requests'] * 1e3:.1f} ms a request",
        )
        for name, seconds in totals.items()
        if name != LEARNED
    ]
    for row in answer["stepped"]:
        rows.append(Row(what=row["what"], measured=row["measured"]))
    return rows


def _built(workshop: Workshop, name: str, profile: Path) -> Path:
    workshop.progress(f"build: {name}")
    return Path(workshop.build_report(workshop.model("bert"), profile)["artifact"])


def learn(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: the learned profile, and the learner's plan for a stepped backend."""
    import aotc
    from aotc.spec.yaml import yaml_text

    answer = aotc.profile_learn(
        request["traffic"],
        model=request["model"],
        max_variants=MAX_VARIANTS,
        seconds=request["seconds"],
    )
    Path(request["output"]).write_text(yaml_text(answer.profile, full=False))
    stepped = aotc.profile_learn(
        request["traffic"],
        costs=ROOT / "benchmarks" / "data" / "openvino-bert-base.costs.json",
        max_variants=MAX_VARIANTS,
    )
    named = {f"{plan.name}, {plan.variants}": plan for plan in stepped.plans}
    (chosen,) = (plan for plan in stepped.plans if plan.chosen)
    wanted = ("one dynamic variant", "dynamic, padded", "powers of two", "pad to the largest")
    rows = [
        {
            "what": "the same traffic on costs recorded from OpenVINO: the learner's plan",
            "measured": f"{chosen.ratio:.3f} of the best ({stepped.verdict}; "
            + "; ".join(f"{dim} {list(sizes)}" for dim, sizes in chosen.buckets.items())
            + ")",
        }
    ]
    rows += [
        {
            "what": f"the same traffic on costs recorded from OpenVINO: {name}",
            "measured": f"{plan.ratio:.3f} of the best",
        }
        for name, plan in named.items()
        if name.startswith(wanted)
    ]
    return {"verdict": answer.verdict, "requests": REQUESTS, "stepped": rows}


def by_turns(request: dict[str, Any]) -> dict[str, list[float]]:
    """In a fresh process: seconds of all requests per round, plans in random order."""
    import aotc

    models = {
        name: aotc.load(path, key=request["key"]) for name, path in request["artifacts"].items()
    }
    given = [
        {
            value.name: np.ones((1, length), np.int64) * (value.name != "token_type_ids")
            for value in next(iter(models.values())).inputs
        }
        for length in request["lengths"]
    ]
    seconds: dict[str, list[float]] = {name: [] for name in models}
    order = list(models)
    generator = random.Random(0)
    for turn in range(request["rounds"] + 1):
        spent = dict.fromkeys(models, 0.0)
        for inputs in given:
            generator.shuffle(order)
            for name in order:
                time.sleep(PAUSE_SECONDS)
                started = time.perf_counter()
                models[name].run(inputs)
                spent[name] += time.perf_counter() - started
        if turn:
            for name, total in spent.items():
                seconds[name].append(total)
    return seconds
