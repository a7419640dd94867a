"""Analyze: prove for which shapes the original model runs, and record the reference outputs."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.graph import values
from aotc.graph.allowed_arrays import require_allowed
from aotc.pipeline.attempts import without_empty_sizes
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.gates import (
    add_second_answers,
    exact_answers,
    judge_parity,
    unjudged_findings,
)
from aotc.pipeline.integers import unused_calibration, with_sampled_references
from aotc.pipeline.margins import decided_outputs, loaded, original_margins, original_request
from aotc.pipeline.plan import captured_conditions, require_gated_outputs, stated_crops
from aotc.pipeline.prove import beside_output
from aotc.pipeline.shown import judge_branches, require_branches, with_shown
from aotc.pipeline.task import measure_original
from aotc.pipeline.types import AnalyzedModel, ReferenceRun, SourceModel
from aotc.session.parity import SLICE, compare
from aotc.session.slices import SlicePool
from aotc.sizes.shown import OutputTraits
from aotc.sizes.trials import died_in_several, read_leftovers, runs_so_far
from aotc.sources.base import Taken
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Comparison
from aotc.spec.manifest import ControlPath
from aotc.spec.parted import PartedAxis
from aotc.spec.payload import Finding, ValueShapes
from aotc.spec.precision import Arithmetic, DecidedOutput, Tolerance
from aotc.spec.shapes import DimRange, Domain, Padding, sizes_in_words

_MAX_CRASHES = 12
# After so many at size 0, it is tried no more.
_MAX_EMPTY_CRASHES = 4
# A job ended by a signal, for example from the system when memory is short.
_CUSTOM_OPS_FIX: Final = (
    "Generated inputs may be nothing that the library's operators take, such as the bytes of an "
    "image: give real ones with --fixtures. If these crash too, report them to the library."
)
_CRASH_CODES = ("AOTC-I013", "AOTC-I014", "AOTC-I015")


def analyze(
    source: SourceModel, ranges: Mapping[str, DimRange], state: BuildState
) -> AnalyzedModel:
    """The domain, golden outputs and findings of `source`.

    Raises AOTC-I008, I009, I012 to I016 (ONNX Runtime refuses), I024 and I087 (fixtures), S001 to
    S005, S011, S014 and S016, I078 to I081, N025, N027, N049, N050 (gates), N063 and S019 (seeds).
    """
    context = state.context
    profile = context.profile
    require_gated_outputs(source, context)
    require_branches(source, context)
    folder = state.work / "reference"
    state.clock.reporter.follow("probes", runs_so_far(folder))
    model, weights = source.answering
    given = _user_fixtures(source, context, state.work / "given")
    if context.fixtures is None and source.taken is not None:
        given = _captured_examples(source, source.taken, ranges, state.work / "given")
    result, crashes = _run_analysis(
        folder,
        {
            "model": str(model),
            "weights": str(weights),
            "symbols": encode(source.symbols),
            "outputs": [encode(value) for value in source.outputs],
            "hints": source.hints,
            "graph": str(source.graph),
            "graph_weights": str(source.weights),
            "control_flow": bool(source.capture.control_flow),
            "pads": {name: encode(spec.pad) for name, spec in profile.inputs.items()},
            "crops": stated_crops(source, context),
            "stated": {name: encode(spec) for name, spec in ranges.items()},
            "conditions": [encode(each) for each in captured_conditions(source)],
            "probe": encode(profile.probe),
            # What other providers compile holds within one range.
            "further": all(
                (spec.providers or profile.providers) == ("cpu",) for spec in profile.variants
            ),
            "parity": encode(profile.parity),
            "given": given,
            "seeded": source.random is not None and source.random.draws,
            "custom_ops": bool(context.custom_ops),
        },
        source,
        state,
    )
    rewritten: tuple[Finding, ...] = ()
    if source.reference is not None:
        what = "this CPU lacks VNNI: the reference's integer products have operands of one sign"
        rewritten = (Finding(code="AOTC-O008", what=what, where="reference"),)
    domain = decode(Domain, result["domain"])
    padding = decode(Padding, result["padding"]) if result["padding"] else None
    if padding is not None and source.random is not None and source.random.draws:
        raise AotcError(
            "AOTC-S019",
            "what is drawn from seeds has other numbers at padded sizes",
            where=listed([f"node {node.node}" for node in source.random.nodes]),
            fix="Pass the random numbers (--random as-input), or do not pad (outside: route, or "
            "reject).",
        )
    references = tuple(ReferenceRun.read(item, folder) for item in result["references"])
    branches = result["branches"]
    if branches is not None:
        branches = tuple(decode(ControlPath, item) for item in branches)
    judge_branches(branches, context, state.journal)
    exact = exact_answers(source, references, state)
    analyzed = AnalyzedModel(
        source=source,
        ranges=ranges,
        domain=domain,
        references=exact.references,
        activation_bytes=result["activation_bytes"],
        shapes=tuple(decode(ValueShapes, item) for item in result["shapes"]),
        padding=padding,
        parted={
            name: tuple(decode(PartedAxis, each) for each in axes)
            for name, axes in result["parted"].items()
        },
        decided={name: decode(DecidedOutput, item) for name, item in result["decided"].items()},
        noise=exact.noise,
        task=measure_original(source, domain, padding, state),
        traits=tuple(decode(OutputTraits, item) for item in result["traits"]),
        lacks=result["lacks"],
        branches=branches,
        findings=(
            *rewritten,
            *(decode(Finding, item) for item in result["findings"]),
            *exact.findings,
            *unjudged_findings(source, references, context),
            *crashes,
        ),
    )
    before = analyzed.references
    analyzed = with_shown(with_sampled_references(analyzed, state), state)
    if analyzed.references is before:
        unused = unused_calibration(context)
        analyzed = replace(analyzed, findings=(*unused, *analyzed.findings))
    sampled = exact_answers(source, analyzed.sampled, state, "sampled").references
    return replace(analyzed, sampled=sampled)


def _run_analysis(
    folder: Path,
    request: dict[str, Json],
    source: SourceModel,
    state: BuildState,
) -> tuple[Json, tuple[Finding, ...]]:
    """Run the job; if a trial kills it, run it again without those sizes and record a finding.

    If several runs at once were too much, or it died in them, it starts anew without that.
    """
    fatal_sizes: list[Json] = []
    fatal_empties = 0
    side_by_side = True
    findings: list[Finding] = []
    done: list[Json] = []
    spent = 0.0
    while True:
        try:
            result = state.workers.run(
                "aotc.sizes.analysis:analyze_job",
                {
                    **request,
                    "empties": fatal_empties < _MAX_EMPTY_CRASHES,
                    "deadly": fatal_sizes,
                    "done": done,
                    "spent": spent,
                    "side_by_side": side_by_side,
                },
                folder=folder,
                where=source.path.name,
            )
            if result.value is not None:
                return result.value, tuple(findings)
            side_by_side = False
            _, spent, done = read_leftovers(folder)
            shutil.rmtree(folder)
        except AotcError as error:
            died = error.code in _CRASH_CODES and " ended by " in error.what
            if died and side_by_side and died_in_several(folder):
                side_by_side = False
                _, spent, done = read_leftovers(folder)
                shutil.rmtree(folder)
                continue
            sizes, spent, done = read_leftovers(folder) if died else ({}, spent, done)
            if not sizes or sizes in fatal_sizes or len(fatal_sizes) == _MAX_CRASHES:
                if error.code == "AOTC-I013" and state.context.custom_ops:
                    error.fix = _CUSTOM_OPS_FIX
                raise
            fatal_empties += 0 in sizes.values()
            fatal_sizes.append(sizes)
            cause = error.what.partition(" ended by ")[2]
            if "alarm" in cause:
                spent += state.context.profile.probe.run_seconds
            # Nobody asked for size 0: such calls are merely refused.  The same holds for other
            # values of inputs, whose number is under the empty name.
            if 0 not in sizes.values() and "" not in sizes:
                findings.append(
                    Finding(code="AOTC-S012", what=f"ended by {cause}", where=sizes_in_words(sizes))
                )
            shutil.rmtree(folder)


def _user_fixtures(source: SourceModel, context: BuildContext, folder: Path) -> list[Json]:
    """The user's fixtures as value files; raises AOTC-I024 and I087."""
    if context.fixtures is None:
        return []
    from aotc.sizes.inputs.fixtures import read_fixtures

    return read_fixtures(context.fixtures, source.inputs, folder, source.outputs)


def _captured_examples(
    source: SourceModel, taken: Taken, ranges: Mapping[str, DimRange], folder: Path
) -> list[Json]:
    """The inputs that a framework's source has of its own, as fixtures, if they may be passed.

    None of a model of fixed sizes: generated ones ship with the artifact, and would be left out.
    """
    from aotc.sizes.inputs.fixtures import FixtureInputs, read_fixtures

    if not taken.captured.examples or not any(
        isinstance(dim, str) for value in source.inputs for dim in value.shape or ()
    ):
        return []
    try:
        items = read_fixtures(taken.folder / taken.captured.examples, source.inputs, folder)
        read = [FixtureInputs.read(item, source.inputs) for item in items]
        for item in read:
            require_allowed(item.inputs, source.inputs, item.sizes, code="AOTC-I112", where="")
    except AotcError:
        # What the profile says of inputs is not what the source was captured with.
        return []
    fits = all(
        spec.allows(item.sizes[name])
        for item in read
        for name, spec in ranges.items()
        if name in item.sizes
    )
    return items if fits else []


# The framework's own answers as the reference, where the model was captured from its source.
#
# The exported model, without optimizations, is the second reference: what differs between the two
# is the exporter's doing, and what a variant adds to that is the optimizer's.


_EXPORTER: Final = "exporter"
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
        return _with_finding(analyzed, Finding(code="AOTC-I129", what=what, where=taken.title))
    refused: list[AotcError] = []
    runs = _answered_by_framework(analyzed.references, taken, "framework", state, refused)
    sampled = _answered_by_framework(analyzed.sampled, taken, "framework-sampled", state, refused)
    comparisons, found = _compared_exporter(analyzed, [*runs, *sampled], state)
    refused += found
    left_out: list[Finding] = []
    if refused:
        fewer = without_empty_sizes(analyzed, [_with_others(refused)])
        if fewer is None:
            raise _with_others(refused)
        analyzed = fewer[0]
        left_out = [replace(fewer[1], what=fewer[1].what.replace("a variant", "the framework"))]
        known = {run.name for run in runs}
        claimed = still_claimed(runs, analyzed.references)
        runs = list(claimed.values())
        comparisons = tuple(
            replace(each, fixture=claimed[each.fixture].name) if each.fixture in claimed else each
            for each in comparisons
            if each.fixture in claimed or each.fixture not in known
        )
    state.journal.noticed(left_out)
    exact = state.context.profile.gates.against == "float64"
    return replace(
        analyzed,
        references=analyzed.references if exact else tuple(runs),
        sampled=analyzed.sampled if exact else tuple(sampled),
        exported=comparisons,
        findings=(*analyzed.findings, *left_out),
    )


def still_claimed(
    runs: Sequence[ReferenceRun], references: Sequence[ReferenceRun]
) -> dict[str, ReferenceRun]:
    """Of `runs`, by name, those that are of `references`, with the names that these have now.

    Ranges that are left are numbered anew, so that a name may be another run's.
    """
    names = {run.first_output: run.name for run in references}
    of_exported = {run.name: next(iter(run.exported.values())) for run in runs}
    return {
        run.name: replace(run, name=names[of_exported[run.name]])
        for run in runs
        if of_exported[run.name] in names
    }


def _with_finding(analyzed: AnalyzedModel, finding: Finding) -> AnalyzedModel:
    return replace(analyzed, findings=(*analyzed.findings, finding))


def _with_others(errors: Sequence[AotcError]) -> AotcError:
    first = copy.copy(errors[0])
    first.also = tuple(errors[1:])
    return first


def _answered_by_framework(
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
        "aotc.sources.capturing:answers_job",
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


def _compared_exporter(
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
    comparisons = _run_exporter(runs, request, "exporter", state)
    only_slices = {
        breached for each in comparisons for error in each.outputs for breached in error.breached
    } == {SLICE}
    if only_slices:
        plain = [replace(run, outputs=run.exported) for run in runs]
        if add_second_answers(source, plain, state):
            comparisons = _run_exporter(runs, request, "exporter-again", state)
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


def _run_exporter(
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
        "aotc.pipeline.analyze:exporter_job",
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
