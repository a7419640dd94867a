"""The worker job of a task: a session answers a labelled set, and its metric is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aotc.contract.codec.parsing import Json, decode
from aotc.contract.manifest.interface import Value
from aotc.contract.precision.quality_gates import TaskGate
from aotc.contract.shapes.bucket_choice import sizes_in_graph
from aotc.contract.shapes.domain import Domain
from aotc.contract.shapes.padding_rules import Padding
from aotc.engine.job_steps import tell_steps
from aotc.errors import AotcError

Run = Callable[[Mapping[str, Any]], Any]


def task_job(request: Json) -> Json:
    """In the worker: the metric, the number of samples, and the files that the session takes.

    `request["variant"]` describes the variant; without it the original runs.
    """
    from aotc.engine.padding import Padder
    from aotc.stages.proving.task_data import batches
    from aotc.stages.proving.task_function import FunctionMetric
    from aotc.stages.proving.task_metrics import metric_of

    task = decode(TaskGate, request["task"])
    inputs = [decode(Value, item) for item in request["inputs"]]
    domain = decode(Domain, request["domain"])
    padder = Padder(inputs, decode(Padding, request["padding"]) if request["padding"] else None)
    output, variant = request["output"], request["variant"]
    run = _variant_run(variant, output) if variant else _original_run(request, output)
    # Last, so that modules of the user's shadow none of those above.
    metric = (
        FunctionMetric(task.metric, request["folders"], request["where"])
        if task.runs_code
        else metric_of(task.metric, task.ignore_label, request["where"])
    )
    samples, taken = 0, []
    for number, name in enumerate(request["files"]):
        tell_steps(number, len(request["files"]))
        took = False
        for batch in batches(Path(name), inputs, task.labels, domain, request["buckets"]):
            wanted = _wanted(batch.sizes, domain, request)
            if wanted is None:
                break
            given = batch.inputs
            if wanted != batch.sizes:
                given = padder.pad(given, batch.sizes, wanted).inputs
            found = run(given)
            if wanted != batch.sizes:
                (found,) = padder.crop([output], [found], batch.sizes)
            metric.add(batch.judged(found, f"output {output!r}"), batch.labels)
            samples += batch.samples
            took = True
        if took:
            taken.append(name)
    return {
        "value": metric.value() if samples else None,
        "samples": samples,
        "files": taken,
        "not_numbers": metric.not_numbers,
    }


def _wanted(sizes: Mapping[str, int], domain: Domain, request: Json) -> dict[str, int] | None:
    """The sizes at which the session runs a batch; None if the variant leaves it to another."""
    if not domain.accepts(sizes) or any(
        relation.enforced and relation.is_broken(sizes) for relation in domain.relations
    ):
        raise AotcError(
            "AOTC-I079",
            "the labelled set has sizes at which the model is not built to run",
            where=request["where"],
            expected=", ".join(f"{name} {dim.text()}" for name, dim in domain.dims.items()),
            found=", ".join(f"{name}={size}" for name, size in sizes.items()),
        )
    # The original runs any size as it is.
    return sizes_in_graph(domain, request["served"], sizes) if request["variant"] else dict(sizes)


def _variant_run(request: Json, output: str) -> Run:
    from aotc.engine.session import run
    from aotc.stages.proving.proof_job import open_variant

    session = open_variant(request)
    return lambda inputs: run(session, inputs, [output], refusal="AOTC-N001")[0]


def _original_run(request: Json, output: str) -> Run:
    from aotc.engine.session import run
    from aotc.graphs.original import open_original

    _, session = open_original(Path(request["model"]), Path(request["weights"]))

    def answered(inputs: Mapping[str, Any]) -> Any:
        try:
            return run(session, inputs, [output])[0]
        except AotcError as error:
            what = "the original model does not run on the labelled set"
            raise AotcError("AOTC-I079", what, where=request["where"], found=error.found) from None

    return answered
