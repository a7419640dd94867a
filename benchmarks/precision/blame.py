"""The search for nodes to blame: a planted product in BERT-base, which int8 cannot hold.

One input channel of the last layer is a thousand times as large as the others; what 8 bits with one
scale leave of them is nothing.  The build in dynamic int8 is refused, and must name the planted
nodes, one of them or both, and nothing else.
"""

from __future__ import annotations

from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.networks.models import BERT_LAYERS, SMOKE_LAYERS, outlier
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

MOST_TRIALS = 15
# Of the largest answer: between what int8 is off by without the planted product, and with it.
LIMIT, SMOKE_LIMIT = 0.1, 0.01


def run(workshop: Workshop) -> Result:
    """A refused build, what it blames, and how many sessions and seconds that took."""
    name = "bert_planted"
    model = workshop.model(name)
    plant = outlier(SMOKE_LAYERS if workshop.smoke else BERT_LAYERS)
    tolerance = {"atol": 0, "rtol": SMOKE_LIMIT if workshop.smoke else LIMIT}
    fields = {
        "precision": "int8",
        "quantization": {"form": "dynamic"},
        "dims": dict(model.sizes),
        "parity": {"random_shapes": 0, "int8": tolerance},
    }
    output = workshop.folder / "artifacts" / "blamed.aotc"
    output.parent.mkdir(parents=True, exist_ok=True)
    workshop.progress(f"refuse {model.title}")
    found = run_fresh(
        "precision.blame:blamed",
        {
            "model": str(model.path),
            "profile": str(workshop.profile(f"{model.folder}-blame", fields)),
            "key": str(workshop.key()[0]),
            "output": str(output),
        },
    )
    exact = bool(found["kept"]) and set(found["kept"]) <= set(plant.nodes)
    rows = (
        Row(
            what=f"{model.title}: what is to be kept in float32",
            asked=f"of {' and '.join(plant.nodes)} alone",
            measured=", ".join(found["kept"]) or "nothing",
            held=exact,
        ),
        Row(
            what=f"{model.title}: sessions of the search",
            asked=f"≤ {MOST_TRIALS}",
            measured=f"{found['trials']} of {found['candidates']} candidates, in "
            f"{found['seconds']:.0f} s with the builds themselves",
            held=0 < found["trials"] <= MOST_TRIALS,
        ),
    )
    return Result(rows=rows, samples={"seconds": [found["seconds"]]})


def blamed(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: build, expect a refusal, and return what it blames."""
    import time

    from aotc.base.errors import AotcError
    from aotc.pipeline.build import build
    from aotc.spec.run_report import Journal

    journal, started, line = Journal(), time.perf_counter(), "the build passed"
    try:
        build(**request, force=True, cache=False, journal=journal)
    except AotcError as error:
        line = error.line()[:120]
    seconds = time.perf_counter() - started
    first = next(iter(journal.blamed), None)
    return {
        "line": line,
        "kept": list(first.keep_float32) if first else [],
        "trials": first.trials if first else 0,
        "candidates": first.candidates if first else 0,
        "seconds": seconds,
    }
