"""The framework's own answers as the reference, where a model was captured from its source.

The exported model, without optimizations, is the second reference: what differs between the two is
the exporter's doing, and what a variant adds to that is the optimizer's.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.graph import values
from aotc.pipeline.attempts import without_empty_sizes
from aotc.pipeline.context import BuildState
from aotc.pipeline.gates import add_second_answers, judge_parity
from aotc.pipeline.margins import decided_outputs, loaded, original_margins, original_request
from aotc.pipeline.prove import beside_output
from aotc.pipeline.types import AnalyzedModel, ReferenceRun, SourceModel
from aotc.session.parity import SLICE, compare
from aotc.session.slices import SlicePool
from aotc.sources.base import Taken
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Comparison
from aotc.spec.payload import Finding
from aotc.spec.precision import Arithmetic, Tolerance
from aotc.spec.run_report import Gate
from aotc.spec.shapes import sizes_in_words

_EXPORTER: Final = "exporter"
_DIMS: Final = "gates.dims"
_FIX: Final = (
    "Bound the dims to the sizes that the framework takes, such as --dim NAME=MIN..MAX, or give "
    "inputs that it takes with --fixtures."
)


def against_framework(analyzed: AnalyzedModel, state: BuildState) -> AnalyzedModel:
    """`analyzed` with the framework's answers as golden outputs, which the exported model gives.

    Sizes of 0 at which the framework fails, or answers otherwise, are claimed no more.  Where the
    profile compares with float64, its answers stay, and the exported model's are judged alone.
    Raises AOTC-I126 (the framework fails) and N078 (the exported model answers otherwise).
    """
    taken = analyzed.source.taken
    if taken is None or not analyzed.references:
        return analyzed
    if analyzed.source.random is not None and analyzed.source.random.draws:
        what = "answers depend on random numbers, and the framework draws others"
        return _with(analyzed, Finding(code="AOTC-I129", what=what, where=taken.title))
    refused: list[AotcError] = []
    runs = _answered(analyzed.references, taken, "framework", state, refused)
    sampled = _answered(analyzed.sampled, taken, "framework-sampled", state, refused)
    comparisons, found = _compared(analyzed, [*runs, *sampled], state)
    refused += found
    left_out: list[Finding] = []
    if refused:
        fewer = without_empty_sizes(analyzed, [_with_others(refused)])
        if fewer is None:
            raise _with_others(refused)
        analyzed = fewer[0]
        left_out = [replace(fewer[1], what=fewer[1].what.replace("a variant", "the framework"))]
        names = {run.name for run in analyzed.references}
        runs = [run for run in runs if run.name in names]
    state.journal.noticed(left_out)
    exact = state.context.profile.gates.against == "float64"
    return replace(
        analyzed,
        references=analyzed.references if exact else tuple(runs),
        sampled=analyzed.sampled if exact else tuple(sampled),
        exported=comparisons,
        findings=(*analyzed.findings, *left_out),
    )


def judge_dims(taken: Taken, state: BuildState) -> tuple[Finding, ...]:
    """AOTC-I124 for each dim that was to be dynamic, I123 without any; the gate raises I128."""
    found = taken.captured.framework
    findings = [
        Finding(
            code="AOTC-I124",
            what=f"{each.input}.{each.axis} has the size {each.size} alone"
            + (f": {each.why}" if each.why else ""),
            where=each.place or f"input {each.input}",
        )
        for each in found.static_dims
    ]
    if not found.dims:
        what = "every dim of the inputs has one size"
        findings.append(Finding(code="AOTC-I123", what=what, where=found.source))
    if state.context.profile.gates.dims is None:
        return tuple(findings)
    place = state.context.places.of(_DIMS)
    gate = Gate(
        name=_DIMS,
        subject="model",
        status="failed" if findings else "passed",
        limit="dims that were asked to be dynamic are, and one is",
        measured=listed([each.what for each in findings]) or f"{len(found.dims)} are",
        place=place,
    )
    state.journal.judged((gate,))
    if findings:
        raise AotcError(
            "AOTC-I128",
            "dims are static",
            where=findings[0].where,
            expected=gate.limit,
            found=gate.measured[:1000],
            place=place,
        )
    return ()


def _with(analyzed: AnalyzedModel, finding: Finding) -> AnalyzedModel:
    return replace(analyzed, findings=(*analyzed.findings, finding))


def _with_others(errors: Sequence[AotcError]) -> AotcError:
    first = copy.copy(errors[0])
    first.also = tuple(errors[1:])
    return first


def _answered(
    references: Sequence[ReferenceRun],
    taken: Taken,
    name: str,
    state: BuildState,
    refused: list[AotcError],
) -> list[ReferenceRun]:
    """The runs with the framework's answers; those at which it fails are `refused` instead."""
    if not references:
        return []
    folder = state.work / name
    answers = state.workers.run(
        "aotc.sources.base:answers_job",
        {
            "importer": taken.importer,
            "request": encode(taken.request),
            "captured": encode(taken.captured),
            "folder": str(taken.folder),
            "fixtures": [
                {"inputs": run.input_paths, "outputs": run.output_paths} for run in references
            ],
        },
        folder=folder,
        where=taken.title,
    ).value
    found = []
    for run, answer in zip(references, answers, strict=True):
        if "error" in answer:
            at = sizes_in_words(run.sizes) or "static shapes"
            refused.append(
                AotcError(
                    "AOTC-I126",
                    f"{taken.importer} fails at {at}, where the exported model answers",
                    where=f"{taken.title}, fixture {run.name}",
                    found=answer["error"],
                    fix=_FIX,
                )
            )
        else:
            outputs = {name: folder / path for name, path in answer["outputs"].items()}
            found.append(replace(run, outputs=outputs, exported=run.outputs))
    return found


def _compared(
    analyzed: AnalyzedModel, runs: Sequence[ReferenceRun], state: BuildState
) -> tuple[tuple[Comparison, ...], list[AotcError]]:
    """The exported model's answers beside the framework's, and what breaches the tolerance."""
    source, context = analyzed.source, state.context
    taken = source.taken
    assert taken is not None
    arithmetic = own_arithmetic(source)
    tolerance: Tolerance = getattr(context.profile.parity, arithmetic)
    decided = decided_outputs(analyzed.decided, arithmetic, tolerance)
    request = {
        "tolerance": encode(tolerance),
        "arithmetic": arithmetic,
        "original": original_request(source.answering, decided),
        "parted": {name: [encode(axis) for axis in axes] for name, axes in analyzed.parted.items()},
    }
    comparisons = _run(runs, request, "exporter", state)
    only_slices = {
        breached for each in comparisons for error in each.outputs for breached in error.breached
    } == {SLICE}
    if only_slices:
        plain = [replace(run, outputs=run.exported) for run in runs]
        if add_second_answers(source, plain, state):
            comparisons = _run(runs, request, "exporter-again", state)
    where = f"{taken.title}, {_EXPORTER}"
    judged = judge_parity(comparisons, where, arithmetic, tolerance, context.places)
    state.journal.judged(judged.gates)
    return comparisons, [_exporters(error, taken) for error in judged.breaches]


def _exporters(error: AotcError, taken: Taken) -> AotcError:
    """A breach of the exporter, as it is told."""
    name = taken.captured.framework.exporter or taken.importer
    return AotcError(
        "AOTC-N078",
        f"{error.what} from {taken.importer}'s own: {name} changed it",
        where=error.where,
        expected=error.expected,
        found=error.found,
        place=error.place,
    )


def _run(
    runs: Sequence[ReferenceRun], request: dict[str, Json], name: str, state: BuildState
) -> tuple[Comparison, ...]:
    items = [
        {
            "name": run.name,
            "sizes": dict(run.sizes),
            "inputs": run.input_paths,
            "outputs": run.output_paths,
            "exported": {name: str(path) for name, path in run.exported.items()},
            "second": {
                name: str(path)
                for name, path in state.seconds.get(next(iter(run.exported.values())), {}).items()
            },
        }
        for run in runs
    ]
    value = state.workers.run(
        "aotc.pipeline.against_framework:exporter_job",
        {**request, "references": items},
        folder=state.work / name,
        where=_EXPORTER,
    ).value
    return tuple(decode(Comparison, item) for item in value)


def exporter_job(request: Json) -> Json:
    """In the worker: compare the exported model's answers with the framework's."""
    tolerance = decode(Tolerance, request["tolerance"])
    margins = original_margins(request["original"])
    pool = SlicePool()
    comparisons = []
    for reference in request["references"]:
        errors = []
        for name, path in reference["outputs"].items():
            golden = values.load(Path(path))
            exported = values.load(Path(reference["exported"][name]))
            beside = beside_output(request, reference, name, pool)
            inputs = partial(loaded, reference["inputs"])
            judge = margins.judge(name, reference["name"], inputs, tolerance)
            error = compare(golden, exported, tolerance, name, None, beside, judge)
            errors.append(error)
        comparisons.append(
            Comparison(fixture=reference["name"], sizes=reference["sizes"], outputs=tuple(errors))
        )
    return [encode(item) for item in comparisons]


def own_arithmetic(source: SourceModel) -> Arithmetic:
    """The kind of arithmetic in which the model itself computes, a field of `ParitySpec`."""
    if source.capture.quantized:
        return "quantized"
    return "float16" if source.capture.half_precision or source.retyped else "float32"
