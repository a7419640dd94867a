"""The gate of a task: a metric on the user's labelled set, of the original and of every variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError, Place
from aotc.base.records import record
from aotc.graph.partition.budgets import Judged
from aotc.pipeline.options import BuildOptions
from aotc.pipeline.plan import labelled_set, profile_folder
from aotc.pipeline.proof_job import open_variant, variant_request
from aotc.pipeline.task_data import batches, set_digest, task_files
from aotc.pipeline.types import AnalyzedModel, LoweredModel, SourceModel, TaskOriginal
from aotc.session.worker import steps_of, tell_steps
from aotc.spec.buckets import sizes_in_graph
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import TaskResult
from aotc.spec.payload import Value
from aotc.spec.precision import TaskGate, TaskVerdict
from aotc.spec.run_report import Gate, GateStatus, Measurement
from aotc.spec.shapes import Domain, Padding

_SETTING: Final = "gates.task"
# What rounding leaves of a difference that is exactly the allowed one.
_ROUNDING: Final = 1e-9
Run = Callable[[Mapping[str, Any]], Any]


@record
class JudgedTask:
    """What a variant's metric says; `result` is None where it takes none of the samples."""

    judged: Judged = Judged()
    result: TaskResult | None = None
    verdict: TaskVerdict | None = None
    measurements: tuple[Measurement, ...] = ()


def measure_original(
    source: SourceModel, domain: Domain, padding: Padding | None, options: BuildOptions
) -> TaskOriginal | None:
    """The original's metric; None if the profile judges by no task.

    Raises AOTC-I079 to I081, N025 and N027 where it has none, at the line of the profile.
    """
    task = options.profile.gates.task
    if task is None:
        return None
    try:
        if task.labels in {value.name for value in source.inputs}:
            raise AotcError(
                "AOTC-I080",
                "the array of the labels is an input of the model",
                where="the profile",
                expected="an array that is not an input",
                found=task.labels,
                fix="Name the array of the labels with gates.task.labels.",
            )
        path = labelled_set(task, options)
        files = task_files(path)
        value = _run(source, domain, padding, files, None, options, "the original model")
    except AotcError as error:
        error.place = error.place or _place(error.code, options)
        raise
    return TaskOriginal(
        files=files, data=set_digest(path, files), samples=value["samples"], value=value["value"]
    )


def judge_task(lowered: LoweredModel, options: BuildOptions, *, divided: bool = True) -> JudgedTask:
    """The gate of one variant: AOTC-N024 if its metric dropped too far, N025 if it has none.

    A variant for other sizes than those of the set is not judged.
    """
    task, analyzed = options.profile.gates.task, lowered.analyzed
    original = analyzed.task
    if task is None or original is None:
        return JudgedTask()
    where, place = f"variant {lowered.plan.name}", options.places.of(f"{_SETTING}.max_drop")
    limit = f"{task.metric} drops by <= {task.max_drop:g}"

    def gate(status: GateStatus, measured: str) -> Gate:
        return Gate(
            name=f"{_SETTING}.max_drop",
            subject=where,
            status=status,
            limit=limit,
            measured=measured,
            place=place,
        )

    try:
        value = _of_variant(lowered, original.files, options, divided=divided)
        if not value["samples"]:
            text = "it takes none of the sizes of the labelled set"
            return JudgedTask(judged=Judged(gates=(gate("not-judged", text),)))
        expected = original.value
        if len(value["files"]) < len(original.files):
            expected = _of_original(analyzed, value["files"], options)
    except AotcError as error:
        error.place = error.place or _place(error.code, options)
        measured = error.found or error.what
        return JudgedTask(judged=Judged(gates=(gate("failed", measured),), breaches=(error,)))
    drop = expected - value["value"]
    passed = drop <= task.max_drop + _ROUNDING
    result = TaskResult(
        metric=task.metric,
        output=_output(task, analyzed.source),
        samples=value["samples"],
        original=expected,
        variant=value["value"],
        drop=drop,
        max_drop=task.max_drop,
        passed=passed,
        nan_answers=value["nan_answers"],
    )
    measured = (
        f"{result.variant:.6g}, {drop:.3g} below the original's {expected:.6g}"
        if drop > 0
        else f"{result.variant:.6g}; the original's is {expected:.6g}"
    )
    if result.nan_answers:
        measured += f"; {result.nan_answers} answers have NaN"
    breach = AotcError(
        "AOTC-N024",
        f"{task.metric} of {result.samples} samples dropped",
        where=where,
        expected=limit,
        found=measured,
        place=place,
    )
    verdict = TaskVerdict(
        metric=task.metric,
        output=result.output,
        samples=result.samples,
        max_drop=task.max_drop,
        data_sha256=original.data,
    )
    return JudgedTask(
        judged=Judged(
            gates=(gate("passed" if passed else "failed", measured),),
            breaches=() if passed else (breach,),
        ),
        result=result,
        verdict=verdict,
        measurements=(
            Measurement(name=task.metric, subject=where, value=result.variant, unit=""),
            Measurement(
                name=f"{task.metric} of the original", subject=where, value=expected, unit=""
            ),
        ),
    )


def _of_variant(
    lowered: LoweredModel, files: Sequence[Path], options: BuildOptions, *, divided: bool
) -> Json:
    analyzed = lowered.analyzed
    return _run(
        analyzed.source,
        analyzed.domain,
        analyzed.padding,
        files,
        variant_request(lowered, options, divided=divided),
        options,
        f"variant {lowered.plan.name}",
        folder=options.work / f"task-{lowered.plan.name}",
        buckets=lowered.plan.buckets,
        served=lowered.plan.served,
    )


def _of_original(analyzed: AnalyzedModel, files: Sequence[str], options: BuildOptions) -> float:
    paths = [Path(name) for name in files]
    value = _run(
        analyzed.source, analyzed.domain, analyzed.padding, paths, None, options, "the original"
    )
    return float(value["value"])


def _run(
    source: SourceModel,
    domain: Domain,
    padding: Padding | None,
    files: Sequence[Path],
    variant: Json,
    options: BuildOptions,
    where: str,
    *,
    folder: Path | None = None,
    buckets: Mapping[str, int] | None = None,
    served: Sequence[Mapping[str, int]] = ({},),
) -> Json:
    task = options.profile.gates.task
    assert task is not None
    output = _output(task, source)
    model, weights = source.answering
    folder = folder or options.work / "task-original"
    options.clock.reporter.follow("files", steps_of(folder, "files"))
    found = options.workers.run(
        "aotc.pipeline.task:task_job",
        {
            "task": encode(task),
            "inputs": [encode(value) for value in source.inputs],
            "domain": encode(domain),
            "padding": encode(padding) if padding is not None else None,
            "output": output,
            "variant": variant,
            "model": str(model),
            "weights": str(weights),
            "files": [str(path.resolve()) for path in files],
            "buckets": dict(buckets or {}),
            "served": [dict(each) for each in served],
            "folders": list(
                dict.fromkeys(str(each) for each in (profile_folder(options), Path.cwd()))
            ),
            "where": f"{where}, output {output!r}",
        },
        folder=folder,
        where=where,
    ).value
    # Of a function, 0 may be the best there is.
    if not variant and not task.runs_code and found["value"] == 0:
        raise AotcError(
            "AOTC-N025",
            f"the original's own {task.metric} is 0, below which no variant can drop",
            where=f"{where}, output {output!r}",
            expected="more than 0",
            found=f"0 on {found['samples']} samples",
        )
    return found


def _place(code: str, options: BuildOptions) -> Place | None:
    """The line of the profile that a refusal is about."""
    fields = {"AOTC-I079": ".data", "AOTC-I080": ".labels", "AOTC-I081": ".output"}
    field = fields.get(code, ".metric" if code in ("AOTC-N025", "AOTC-N027") else "")
    return options.places.of(_SETTING + field)


def _output(task: TaskGate, source: SourceModel) -> str:
    return task.output or source.outputs[0].name


def task_job(request: Json) -> Json:
    """In the worker: the metric, the number of samples, and the files that the session takes.

    `request["variant"]` describes the variant; without it the original runs.
    """
    from aotc.pipeline.task_metrics import FunctionMetric, metric_of
    from aotc.session.padding import Padder

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
        "nan_answers": metric.nan_answers,
    }


def _wanted(sizes: Mapping[str, int], domain: Domain, request: Json) -> dict[str, int] | None:
    """The sizes at which the session runs a batch; None if the variant leaves it to another."""
    if not domain.accepts(sizes) or any(
        relation.enforced and relation.is_broken(sizes) for relation in domain.relations
    ):
        raise AotcError(
            "AOTC-I079",
            "the labelled set has sizes for which the model is not built",
            where=request["where"],
            expected=", ".join(f"{name} {dim.text()}" for name, dim in domain.dims.items()),
            found=", ".join(f"{name}={size}" for name, size in sizes.items()),
        )
    # The original runs any size as it is.
    return sizes_in_graph(domain, request["served"], sizes) if request["variant"] else dict(sizes)


def _variant_run(request: Json, output: str) -> Run:
    from aotc.session.sessions import run

    session = open_variant(request)
    return lambda inputs: run(session, inputs, [output], refusal="AOTC-N001")[0]


def _original_run(request: Json, output: str) -> Run:
    from aotc.session.inference import open_original
    from aotc.session.sessions import run

    _, session = open_original(Path(request["model"]), Path(request["weights"]))

    def answered(inputs: Mapping[str, Any]) -> Any:
        try:
            return run(session, inputs, [output])[0]
        except AotcError as error:
            what = "the original model does not run on the labelled set"
            raise AotcError("AOTC-I079", what, where=request["where"], found=error.found) from None

    return answered
