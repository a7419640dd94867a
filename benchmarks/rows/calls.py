"""The cost of routing, guards, padding and counting per call, beyond the copy itself.

The model is small, so that this cost is visible.  Both sides run alternately in one process: the
loaded model, and its session with arrays that were padded and cropped by hand.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

LIMIT_MICROSECONDS = 30.0
ROUNDS = 4000
BUCKETS = (8, 16, 32)
LENGTH = 11


def run(workshop: Workshop) -> Result:
    """Padded calls, calls of a bucket's own size, and calls with the recorder on."""
    output = _artifact(workshop)
    request = {
        "artifact": str(output),
        "key": str(workshop.key()[1]),
        "rounds": 200 if workshop.smoke else ROUNDS,
        "record": str(workshop.folder / "recorded.jsonl"),
    }
    found = run_fresh("rows.calls:by_turns", request, store=workshop.store)
    rows = []
    for name in ("padded", "own size", "padded, recorded"):
        ours, theirs = median(found[name]), median(found[f"{name}, by hand"])
        extra = (ours - theirs) * 1e6
        rows.append(
            Row(
                what=f"small BERT: a call beyond the session and the copy, {name}",
                asked=f"≤ {LIMIT_MICROSECONDS:g} µs",
                measured=f"{extra:.1f} µs ({ours * 1e6:.0f} µs to {theirs * 1e6:.0f} µs)",
                held=extra <= LIMIT_MICROSECONDS,
            )
        )
    return Result(rows=tuple(rows), samples=found)


def _artifact(workshop: Workshop) -> Path:
    small = Workshop(workshop.folder, True, workshop.progress)
    profile = workshop.profile(
        "calls", {"dims": {"batch": 1, "sequence": {"buckets": list(BUCKETS), "outside": "pad"}}}
    )
    return Path(workshop.build_report(small.model("bert"), profile)["artifact"])


def by_turns(request: dict[str, Any]) -> dict[str, list[float]]:
    """In a fresh process: seconds of each call, both sides alternately."""
    import numpy as np

    import aotc
    from aotc.runtime.warmup import open_variant

    found: dict[str, list[float]] = {}
    for name, length, record in (
        ("padded", LENGTH, None),
        ("own size", 16, None),
        ("padded, recorded", LENGTH, request["record"]),
    ):
        model = aotc.load(request["artifact"], key=request["key"], threads=1, record=record)
        given = {
            value.name: np.ones((1, length), np.int64) * (value.name != "token_type_ids")
            for value in model.inputs
        }
        (variant,) = (known for known in model.variants if known.name == model.route(given).variant)
        opened = open_variant(model.payload, variant, threads=1)
        full = variant.buckets["sequence"]

        def by_hand(
            given: dict[str, Any] = given, opened: Any = opened, full: int = full, n: int = length
        ) -> Any:
            arrays = given
            if n < full:
                arrays = {}
                for key, array in given.items():
                    arrays[key] = np.zeros((1, full), np.int64)
                    arrays[key][:, :n] = array
            (answer,) = opened.run(["last_hidden_state"], arrays)
            return np.ascontiguousarray(answer[:, :n]) if n < full else answer

        np.testing.assert_array_equal(model.run(given)["last_hidden_state"], by_hand())
        sides = {name: lambda m=model, g=given: m.run(g), f"{name}, by hand": by_hand}
        samples: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(request["rounds"]):
            for side in sides if turn % 2 else reversed(list(sides)):
                started = time.perf_counter()
                sides[side]()
                samples[side].append(time.perf_counter() - started)
        model.close()
        found |= {side: values[len(values) // 10 :] for side, values in samples.items()}
    return found
