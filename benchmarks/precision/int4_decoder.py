"""int4 of a small decoder on the CPU: time of one token, and bytes on disk.

Both sides take turns in one process, by the processor's time of one thread.  Weights are random,
and lose more in 4 bits than trained ones do: the tolerance is wider than a profile's usual one.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.compiled import BuildRefusedError, artifact
from benchmarks.fresh import run_fresh
from benchmarks.precision.int8_latency import size_row
from benchmarks.result import Result, Row, at_most, milliseconds, paired_interval
from benchmarks.workshop import Workshop

# By model: the largest share of the float32 model's bytes.
SHARES = {"llama": 0.2, "llama_32000": 0.25, "llama_tied": 0.25}
LARGEST_TIME = 0.6
ROUNDS = 200
WARM_UP = 5
TOLERANCE = {"atol": 0.05, "rtol": 0.5, "min_cosine": 0.9, "max_slice": 0.6}


def run(workshop: Workshop) -> Result:
    """Model by model: the time of one token, and the size of the artifact."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name, share in SHARES.items():
        model = workshop.model(name)
        fields = {"precision": "int4", "dims": model.dims, "parity": {"int4": TOLERANCE}}
        try:
            place = artifact(workshop, name, "int4", fields)
        except BuildRefusedError as refusal:
            rows.append(Row(what=f"{model.title}, int4", measured=str(refusal), held=False))
            continue
        workshop.progress(f"{model.title}, one token")
        request = {
            "artifact": str(place),
            "key": str(workshop.key()[1]),
            "model": str(model.path),
            "sizes": dict(model.sizes),
            "rounds": WARM_UP + workshop.rounds(ROUNDS),
        }
        found = run_fresh("precision.int4_decoder:token_seconds", request, store=workshop.store)
        ours, theirs = (found[side][WARM_UP:] for side in ("int4", "float32"))
        samples |= {f"{name} int4": ours, f"{name} float32": theirs}
        ratio, low, high = paired_interval(ours, theirs)
        detail = f"int4 {milliseconds(median(ours))}, float32 {milliseconds(median(theirs))}"
        rows += [
            at_most(
                f"{model.title}: processor time of one token in int4 to float32",
                ratio,
                LARGEST_TIME,
                f"{detail}; 95 % {low:.3f} to {high:.3f}",
            ),
            size_row(f"{model.title}: the int4 artifact to the model", place, model.path, share),
        ]
    return Result(rows=tuple(rows), samples=samples)


def token_seconds(request: dict[str, Any]) -> dict[str, list[float]]:
    """In a fresh process: seconds of this thread for each call, of both sides in turn."""
    import time
    from pathlib import Path

    import onnxruntime as ort

    import aotc
    from benchmarks.contenders import inputs_at

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
    inputs = inputs_at(Path(request["model"]), request["sizes"])
    found: dict[str, list[float]] = {"int4": [], "float32": []}
    with aotc.load(request["artifact"], key=request["key"], threads=1) as ready:
        for _ in range(request["rounds"]):
            for side, call in (
                ("int4", lambda: ready.run(inputs)),
                ("float32", lambda: session.run(None, inputs)),
            ):
                started = time.thread_time()
                call()
                found[side].append(time.thread_time() - started)
    return found
