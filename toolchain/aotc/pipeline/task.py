"""The gate of a task: a metric on the user's labelled set, of the original and of every variant."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotc.base.errors import AotcError, Place
from aotc.base.files.reading import file_sha256
from aotc.base.records import record
from aotc.graph import values
from aotc.graph.allowed_arrays import require_allowed
from aotc.graph.partition.budgets import Judged
from aotc.graph.values import open_npz
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.lower import open_variant, variant_request
from aotc.pipeline.plan import labelled_set, profile_folder
from aotc.pipeline.types import AnalyzedModel, LoweredModel, SourceModel, TaskOriginal
from aotc.session.worker import steps_of, tell_steps
from aotc.spec.buckets import sizes_in_graph
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import TaskResult
from aotc.spec.payload import Value
from aotc.spec.precision import TaskGate, TaskVerdict
from aotc.spec.run_report import Gate, GateStatus, Measurement, task_measurements
from aotc.spec.shapes import Domain, Padding, sizes_in_words

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
    source: SourceModel,
    domain: Domain,
    padding: Padding | None,
    state: BuildState,
) -> TaskOriginal | None:
    """The original's metric; None if the profile judges by no task.

    Raises AOTC-I079 to I081, N025 and N027 where it has none, at the line of the profile.
    """
    context = state.context
    task = context.profile.gates.task
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
        path = labelled_set(task, context)
        files = task_files(path)
        value = _run(source, domain, padding, files, None, state, "the original model")
    except AotcError as error:
        error.place = error.place or _place(error.code, context)
        raise
    return TaskOriginal(
        files=files, data=set_digest(path, files), samples=value["samples"], value=value["value"]
    )


def judge_task(
    lowered: LoweredModel, where: str, state: BuildState, *, divided: bool = True
) -> JudgedTask:
    """The gate of one variant: AOTC-N024 if its metric dropped too far, N025 if it has none.

    `where` names the variant, and what runs it in place of its target.  A variant for other sizes
    than those of the set is not judged.
    """
    context = state.context
    task, analyzed = context.profile.gates.task, lowered.analyzed
    original = analyzed.task
    if task is None or original is None:
        return JudgedTask()
    place = context.places.of(f"{_SETTING}.max_drop")
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
        value = _of_variant(lowered, original.files, state, divided=divided)
        if not value["samples"]:
            text = "it takes none of the sizes of the labelled set"
            return JudgedTask(judged=Judged(gates=(gate("not-judged", text),)))
        expected = original.value
        if len(value["files"]) < len(original.files):
            expected = _of_original(analyzed, value["files"], state)
    except AotcError as error:
        error.place = error.place or _place(error.code, context)
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
        measurements=task_measurements(result, where),
    )


def _of_variant(
    lowered: LoweredModel,
    files: Sequence[Path],
    state: BuildState,
    *,
    divided: bool,
) -> Json:
    analyzed = lowered.analyzed
    return _run(
        analyzed.source,
        analyzed.domain,
        analyzed.padding,
        files,
        variant_request(lowered, state.context, divided=divided),
        state,
        f"variant {lowered.plan.name}",
        folder=state.work / f"task-{lowered.plan.name}",
        buckets=lowered.plan.buckets,
        served=lowered.plan.served,
    )


def _of_original(analyzed: AnalyzedModel, files: Sequence[str], state: BuildState) -> float:
    paths = [Path(name) for name in files]
    value = _run(
        analyzed.source,
        analyzed.domain,
        analyzed.padding,
        paths,
        None,
        state,
        "the original",
    )
    return float(value["value"])


def _run(
    source: SourceModel,
    domain: Domain,
    padding: Padding | None,
    files: Sequence[Path],
    variant: Json,
    state: BuildState,
    where: str,
    *,
    folder: Path | None = None,
    buckets: Mapping[str, int] | None = None,
    served: Sequence[Mapping[str, int]] = ({},),
) -> Json:
    task = state.context.profile.gates.task
    assert task is not None
    output = _output(task, source)
    model, weights = source.answering
    folder = folder or state.work / "task-original"
    state.clock.reporter.follow("files", steps_of(folder, "files"))
    found = state.workers.run(
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
                dict.fromkeys(str(each) for each in (profile_folder(state.context), Path.cwd()))
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


def _place(code: str, context: BuildContext) -> Place | None:
    """The line of the profile that a refusal is about."""
    fields = {
        "AOTC-I079": ".data",
        "AOTC-I080": ".labels",
        "AOTC-I081": ".output",
        "AOTC-I112": ".data",
    }
    field = fields.get(code, ".metric" if code in ("AOTC-N025", "AOTC-N027") else "")
    return context.places.of(_SETTING + field)


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
            found=sizes_in_words(sizes),
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


# The labelled set: read file by file, and cut into the batches that a model takes.

Array = np.ndarray[Any, Any]


def task_files(path: Path) -> tuple[Path, ...]:
    """The .npz files of a labelled set, in order of their names; raises AOTC-I079."""
    try:
        files = [path] if path.is_file() else sorted(path.glob("*.npz"))
        exists = path.exists()
    except OSError as error:
        raise _unusable("cannot be read", str(path), found=str(error.strerror)) from None
    if not files:
        what = "holds no file" if exists else "does not exist"
        raise _unusable(what, str(path), expected="a .npz file, or a folder of .npz files")
    return tuple(files)


def set_digest(path: Path, files: Sequence[Path]) -> str:
    """The sha256 of the file at `path`; of a folder, that of the names and sha256 of its `files`.

    Raises `OSError`.
    """
    digests = [file_sha256(each) for each in files]
    if path.is_file():
        return digests[0]
    whole = hashlib.sha256()
    for each, digest in zip(files, digests, strict=True):
        whole.update(each.name.encode() + b"\0" + bytes.fromhex(digest))
    return whole.hexdigest()


@record(kw_only=False)
class Batch:
    """Inputs of one run, its sizes by dim, labels of its samples, and how many these are.

    Where a file ends within a batch, its last sample is repeated.  `added`: samples have no axis in
    the model's inputs, and each is a run of its own.
    """

    inputs: Mapping[str, Any]
    sizes: Mapping[str, int]
    labels: Array
    samples: int
    added: bool

    def judged(self, output: Any, where: str) -> Array:
        """The part of an output that is of the samples, along its first axis; raises I081."""
        array = np.asarray(output) if isinstance(output, np.ndarray | np.generic) else None
        if array is not None and self.added:
            array = array[np.newaxis]
        wanted = next(iter(self.inputs.values())).shape[:1] if not self.added else (1,)
        if array is None or not array.ndim or array.shape[:1] != wanted:
            shape = list(array.shape) if array is not None else type(output).__name__
            raise AotcError(
                "AOTC-I081",
                "the output's first axis does not count the samples",
                where=where,
                expected=f"{wanted[0]} of them",
                found=str(shape),
            )
        part: Array = array[: self.samples]
        return part


def batches(
    file: Path,
    inputs: Sequence[Value],
    labels: str,
    domain: Domain,
    buckets: Mapping[str, int],
) -> Iterator[Batch]:
    """The samples of a file in batches of the size that calls have: that of `buckets`, or optimal.

    Raises AOTC-I079, I080 and I112.
    """
    arrays, wanted = _read(file, inputs, labels)
    count = len(wanted)
    added = _samples_are_added(file, arrays, inputs)
    for value in inputs:
        found = arrays[value.name]
        if len(found) != count:
            raise AotcError(
                "AOTC-I080",
                "there are not as many labels as samples",
                where=f"{file}: {labels}",
                expected=f"{len(found)}, as of {value.name}",
                found=str(count),
            )
    step = 1 if added else _step(file, inputs, domain, buckets)
    for start in range(0, count, step):
        rows = np.minimum(np.arange(start, start + step), count - 1)
        part = {name: array[start] if added else array[rows] for name, array in arrays.items()}
        taken = min(step, count - start)
        sizes = _sizes(file, part, inputs)
        require_allowed(part, inputs, sizes, code="AOTC-I112", where=str(file))
        yield Batch(part, sizes, wanted[start : start + taken], taken, added)


def _read(file: Path, inputs: Sequence[Value], labels: str) -> tuple[dict[str, Array], Array]:
    names = [value.name for value in inputs]
    for value in inputs:
        if value.kind != "tensor":
            what = f"only holds arrays, but the model has an input that is a {value.kind}"
            raise _unusable(what, f"{file}: {value.name}", expected="inputs that are tensors")
    try:
        with open_npz(file) as archive:
            found = archive.arrays([*names, labels])
            known = archive.names
    except Exception as error:
        # For a damaged archive numpy, zip and zlib raise any kind of error.
        if not isinstance(error, OSError | ValueError | TypeError | EOFError | zipfile.BadZipFile):
            error = ValueError(str(error) or type(error).__name__)
        text = str(error)[:300]
        raise _unusable("cannot be read", str(file), "a .npz of plain arrays", text) from None
    if labels not in found:
        raise AotcError(
            "AOTC-I080",
            "there are no labels",
            where=str(file),
            expected=f"an array {labels!r}",
            found=", ".join(known)[:300],
            fix="Name their array with gates.task.labels.",
        )
    missing = [name for name in names if name not in found]
    if missing:
        text = ", ".join(known)[:300]
        raise _unusable("lacks inputs of the model", str(file), ", ".join(missing), text)
    wanted = found.pop(labels)
    if not wanted.ndim:
        where = f"{file}: {labels}"
        raise AotcError(
            "AOTC-I080", "the labels are a single value", where=where, expected="an array"
        )
    if not len(wanted):
        raise _unusable("holds no sample", str(file))
    for value in inputs:
        array = found[value.name]
        is_text = array.dtype.kind in "US"
        if (value.dtype == "string") != is_text or (
            not is_text and values.dtype_name(array.dtype) != value.dtype
        ):
            raise _unusable(
                "has another type than the model's input",
                f"{file}: {value.name}",
                value.dtype,
                values.dtype_name(array.dtype),
            )
        if is_text:
            found[value.name] = array.astype(object)
    return found, wanted


def _samples_are_added(file: Path, arrays: Mapping[str, Array], inputs: Sequence[Value]) -> bool:
    """Whether the arrays have one axis more than the inputs, as each sample is a whole input."""
    found = set()
    for value in inputs:
        array = arrays[value.name]
        rank = len(value.shape) if value.shape is not None else array.ndim
        if array.ndim - rank not in (0, 1) or not array.ndim:
            raise _unfit_shape(file, value, array)
        found.add(array.ndim - rank)
    if len(found) > 1:
        ranks = ", ".join(f"{value.name}: {arrays[value.name].ndim}" for value in inputs)
        raise _unusable("has samples along an axis of only some inputs", str(file), found=ranks)
    return found == {1}


def _step(file: Path, inputs: Sequence[Value], domain: Domain, buckets: Mapping[str, int]) -> int:
    """How many samples a run takes."""
    found = {}
    optimal = {**domain.corner("opt"), **buckets}
    for value in inputs:
        first = value.shape[0] if value.shape else 1
        found[value.name] = first if isinstance(first, int) else max(1, optimal.get(first, 1))
    if len(set(found.values())) > 1 or 0 in found.values():
        text = ", ".join(f"{name}: {size}" for name, size in found.items())
        what = "has samples along the first axis, which is not that of samples in every input"
        raise _unusable(what, str(file), "as many of each input", text)
    return next(iter(found.values()), 1)


def _sizes(file: Path, arrays: Mapping[str, Array], inputs: Sequence[Value]) -> dict[str, int]:
    """The sizes of dims in a batch; raises AOTC-I079 if the arrays do not fit the inputs."""
    sizes: dict[str, int] = {}
    for value in inputs:
        shape = np.shape(arrays[value.name])
        for dim, size in zip(value.shape or (), shape, strict=False):
            known = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
            if known != size:
                raise _unfit_shape(file, value, arrays[value.name])
    return sizes


def _unfit_shape(file: Path, value: Value, array: Array) -> AotcError:
    declared = "any" if value.shape is None else str(list(value.shape))
    what = "has another shape than the model's input"
    return _unusable(what, f"{file}: {value.name}", declared, str(list(array.shape)))


def _unusable(what: str, where: str, expected: str = "", found: str = "") -> AotcError:
    return AotcError(
        "AOTC-I079", f"the labelled set {what}", where=where, expected=expected, found=found
    )
