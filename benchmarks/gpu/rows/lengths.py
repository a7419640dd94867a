"""Log-normal lengths on BERT-base: learned buckets with CUDA graphs, to one plain dynamic session.

The plain session gets each request at its exact length.  Requests and answers are arrays of the
host (`run`), or are on the device: a bound call, kept for each length, pads and copies a request,
and the plain session binds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.child import ChildFailedError, one_record
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.run import Run

SECONDS, LEARN_SECONDS, LEARN_LIMIT = 240, 60, 400
REQUESTS, ROUNDS, STREAM = 100, 4, 5
RECORDED, MAX_VARIANTS = 4000, 8
MIDDLE, SIGMA, HIGHEST = 64, 0.7, 512
BATCHES = (1, 8)
OURS, PLAIN = "aotc", "plain session"
# Where the learner cannot measure.
GIVEN = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def run(run: Run) -> None:
    """Learn, build and measure at each batch."""
    settings = run.settings
    precision = settings.precisions(NETWORKS["bert"])[0]
    if "bert" not in run.networks:
        return
    model = settings.model("bert")
    for batch in filter(run.only.batch, BATCHES[: 1 if settings.small else None]):
        cases = [f"batch {batch}, {way}" for way in ("host", "device")]
        if not any(run.wants("lengths", case) for case in cases):
            continue
        with run.guarded("lengths", cases):
            dims, how = _learned(settings, precision, batch)
            fields = profile_fields(settings, precision, dims)
            request = {
                "settings": settings.to_json(),
                "artifact": str(artifact(settings, model, f"lengths-{batch}", fields)),
                "plain": str(in_type(model, precision)),
                "batch": batch,
                "dims": dims,
                "how": how,
            }
            run.keep_records("lengths", "rows.lengths:time_streams", request, SECONDS)


def _highest(settings: Settings) -> int:
    return 64 if settings.small else HIGHEST


def _learned(settings: Settings, precision: str, batch: int) -> tuple[dict[str, Any], str]:
    """The dims that the learner chose, kept in a file; given ones where it failed, and why."""
    from benchmarks.rows.plans import SEED, lengths

    highest = _highest(settings)
    kind = "-small" if settings.small else ""
    kept = settings.folder / "traffic" / f"batch{batch}-{precision}{kind}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        traffic, profile = kept.with_suffix(".jsonl"), kept.with_suffix(".yaml")
        sizes = lengths(RECORDED, SEED, middle=MIDDLE, sigma=SIGMA)
        traffic.write_text(
            "\n".join(json.dumps({"batch": batch, "sequence": min(n, highest)}) for n in sizes)
        )
        fields = {**profile_fields(settings, precision, {})}
        profile.write_text(json.dumps({"schema": "aotc.profile/1", "name": "lengths", **fields}))
        request = {
            "traffic": str(traffic),
            "model": str(settings.model("bert")),
            "profile": str(profile),
            "seconds": 2 if settings.small else LEARN_SECONDS,
        }
        try:
            found = one_record("rows.lengths:learn", request, seconds=LEARN_LIMIT)
        except ChildFailedError as error:
            buckets = [size for size in GIVEN if size <= highest]
            given = {"batch": batch, "sequence": {"buckets": buckets, "outside": "pad"}}
            return given, f"given, as learning failed: {error}"
        kept.write_text(json.dumps(found))
    found = json.loads(kept.read_text())
    new_size = found["new_size_seconds"] * 1e3
    how = f"learned: {found['verdict']}; a new size takes {new_size:.1f} ms more"
    return {"batch": batch, **found["dims"]}, how


def learn(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: the learned dims, the learner's verdict, and what new sizes cost."""
    import yaml

    import aotc
    from aotc.spec.yaml import yaml_text

    answer = aotc.profile_learn(
        request["traffic"],
        model=request["model"],
        profile=request["profile"],
        seconds=request["seconds"],
        max_variants=MAX_VARIANTS,
    )
    dims = yaml.safe_load(yaml_text(answer.profile, full=False))["dims"]
    if isinstance(dims["sequence"], dict):
        # Shorter requests than those recorded may come.
        dims["sequence"]["min"] = 1
    yield {"verdict": answer.verdict, "new_size_seconds": answer.new_size_seconds, "dims": dims}


def time_streams(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: seconds of all requests of a round, sides in turns of a few requests."""
    import aotc
    from benchmarks.gpu import contenders
    from benchmarks.gpu.inputs import inputs_at
    from benchmarks.rows.plans import SEED, lengths

    settings, batch = Settings.from_json(request["settings"]), request["batch"]
    path, highest = settings.model("bert"), _highest(settings)
    model = aotc.load(request["artifact"], store=settings.store)
    session = contenders.plain_session(settings, Path(request["plain"]))
    count = 20 if settings.small else REQUESTS
    rounds = [
        [min(size, highest) for size in lengths(count, SEED + 1 + turn, middle=MIDDLE, sigma=SIGMA)]
        for turn in range(settings.rounds(ROUNDS) + 1)
    ]
    sizes = sorted({size for lengths_ in rounds for size in lengths_})
    host = {size: inputs_at(path, {"batch": batch, "sequence": size}) for size in sizes}
    calls = {
        "host": {
            OURS: lambda size: model.run(host[size]),
            PLAIN: lambda size: session.run(None, host[size]),
        }
    }
    if hasattr(model, "bind"):
        device = {size: contenders.on_device(settings, arrays) for size, arrays in host.items()}
        # A bound call is for one combination of sizes: a server keeps those that it has made.
        bound = {
            size: contenders.with_new_inputs(settings, model, contenders.copied(tensors))
            for size, tensors in device.items()
        }
        captured = all(replays for _, replays in bound.values())
        plain = contenders.plain_with_new_inputs(settings, session)
        calls["device"] = {
            OURS: lambda size: bound[size][0](device[size]),
            PLAIN: lambda size: plain(device[size]),
        }
    for way, sides in calls.items():
        yield {
            "case": f"batch {batch}, {way}",
            "samples": _streams(sides, rounds),
            "requests": count,
            "dims": request["dims"],
            "how": request["how"],
            **({"captured": captured} if way == "device" else {}),
        }


def _streams(sides: dict[str, Any], rounds: list[list[int]]) -> dict[str, list[float]]:
    """Seconds of each round by side; the first round does not count."""
    import time

    seconds: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for turn, requests in enumerate(rounds):
        spent = dict.fromkeys(sides, 0.0)
        for at in range(0, len(requests), STREAM):
            order.reverse()
            for name in order:
                started = time.perf_counter()
                for size in requests[at : at + STREAM]:
                    sides[name](size)
                spent[name] += time.perf_counter() - started
        for name, total in spent.items():
            if turn:
                seconds[name].append(total)
    return seconds
