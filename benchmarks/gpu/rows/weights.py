"""Weights in 8 and 4 bits beside half precision: time of bound calls, errors and device memory.

A build that breaches its limits is told with the reason.  Sides take turns in one process; the
memory is that of a process of its own, without the GPU's context.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, Settings
from benchmarks.gpu.child import ChildFailedError, one_record
from benchmarks.gpu.run import Run

SECONDS = 300
# Decoders read weights for few rows, encoders compute with many.
OF = ("bert", "llama_step")
HALF = "float16"
# By label: the precision, and what the profile says of quantization.
FORMS: dict[str, tuple[str, dict[str, str]]] = {
    HALF: (HALF, {}),
    "int8, rest float16": ("int8", {"form": "weights", "activations": HALF}),
    "int4, rest float16": ("int4", {"activations": HALF}),
    "int4, rest float32": ("int4", {}),
}
ROUNDS = 100


def run(run: Run) -> None:
    """Measure the wanted ones of these networks at all their batches."""
    settings = run.settings
    for case, network, model in run.cases("weights", OF):
        with run.guarded("weights", [case]):
            batches = settings.batches(network)
            artifacts, refused, taken = {}, {}, {}
            for label, (precision, quantization) in FORMS.items():
                fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
                if settings.cpu:
                    # Half precision beside them is CUDA's alone.
                    quantization = {k: v for k, v in quantization.items() if k != "activations"}
                if quantization:
                    fields["quantization"] = quantization
                try:
                    name = label.replace(", ", "-").replace(" ", "-")
                    artifacts[label] = str(artifact(settings, model, name, fields))
                except ChildFailedError as error:
                    refused[label] = str(error)
                    continue
                if not settings.cpu:
                    loaded = {"settings": settings.to_json(), "artifact": artifacts[label]}
                    record = one_record("rows.load:loaded", loaded, seconds=SECONDS)
                    taken[label] = record["bytes"]
            request = {
                "settings": settings.to_json(),
                "network": network.name,
                "batches": batches,
                "artifacts": artifacts,
            }
            found = one_record("rows.weights:time_calls", request, seconds=SECONDS)
            run.keep("weights", {"case": case, **found, "bytes": taken, "refused": refused})


def time_calls(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: seconds by batch and form, and how far answers are from float16's."""
    import aotc
    from benchmarks.gpu import contenders
    from benchmarks.gpu.inputs import as_taken, inputs_at
    from benchmarks.gpu.timing import by_turns

    settings = Settings.from_json(request["settings"])
    network = NETWORKS[request["network"]]
    path = Path(settings.model(network.name))
    models = {
        label: aotc.load(each, store=settings.store) for label, each in request["artifacts"].items()
    }
    samples: dict[str, list[float]] = {}
    errors: dict[str, float] = {}
    for batch in request["batches"]:
        inputs = inputs_at(path, network.sizes(batch))
        answers = {label: model.run(as_taken(model, inputs)) for label, model in models.items()}
        if HALF in answers:
            errors |= {
                f"{label}, batch {batch}": contenders.difference(found, answers[HALF])
                for label, found in answers.items()
            }
        calls = {
            label: contenders.ours(settings, model, [inputs]).bound
            for label, model in models.items()
        }
        for label, seconds in by_turns(calls, settings.rounds(ROUNDS)).items():
            samples[f"{label}, batch {batch}"] = seconds
    yield {"samples": samples, "errors": errors}
