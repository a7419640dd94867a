"""What the fixtures show of outputs and branches: findings, gates, and lower precision refused."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph import values
from aotc.graph.partition.budgets import Judged
from aotc.pipeline.calibration import calibration_samples
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.integers import is_observing, sampled_runs
from aotc.pipeline.types import AnalyzedModel, ReferenceRun, SourceModel, VariantPlan
from aotc.sizes.shown import OutputTraits, answer_of, lack_of
from aotc.spec.manifest import ControlPath
from aotc.spec.payload import Finding
from aotc.spec.run_report import Gate, Journal
from aotc.spec.yaml import DocumentPlaces

_SETTING = "gates.branches"


def require_branches(source: SourceModel, context: BuildContext) -> None:
    """Raise AOTC-N050 if the profile has a gate on branches, and the model has none."""
    if context.profile.gates.branches is None or source.capture.control_flow:
        return
    raise AotcError(
        "AOTC-N050",
        "the model has no branches and no loops",
        where=_SETTING,
        expected="a model with If, Loop or Scan",
        found=", ".join(list(source.capture.op_types)[:5]),
        place=context.places.of(_SETTING),
    )


def judge_branches(
    branches: Sequence[ControlPath] | None, context: BuildContext, journal: Journal
) -> None:
    """The gate on branches, where the profile has one; raises AOTC-N049.

    `branches` is None if it is not known what ran.
    """
    if context.profile.gates.branches is None:
        return
    place = context.places.of(_SETTING)
    known = branches or ()
    missing = [each for each in known if each.missing]
    measured = f"{len(missing)} of {len(known)} were not"
    if branches is None:
        measured = "not known"
    failed = bool(missing) or branches is None
    gate = Gate(
        name=_SETTING,
        subject="model",
        status="failed" if failed else "passed",
        limit="all branches and loops were run by the proof",
        measured=measured if failed else f"{len(known)} were, or cannot run",
        place=place,
    )
    journal.judged((gate,))
    if failed:
        listed = "; ".join(f"{each.op_type} {each.node}: {each.path}" for each in missing)
        raise AotcError(
            "AOTC-N049",
            "the proof did not run all branches",
            where=_SETTING,
            expected=gate.limit,
            found=(listed or measured)[:1000],
            place=place,
        )


def with_shown(analyzed: AnalyzedModel, state: BuildState) -> AnalyzedModel:
    """`analyzed` with what samples of the user show, and a finding for each output that lacks it.

    The samples are those on which activations are observed; or where the fixtures show nothing of
    an output, the calibration data, and what shows something of it is compared with.
    Raises what `calibration_samples` raises, and AOTC-I075.
    """
    context = state.context
    if analyzed.sampled:
        given = [run for run in analyzed.references if run.origin == "user"]
        lacks = lacks_in(analyzed.traits, [*given, *analyzed.sampled])
        analyzed = replace(analyzed, sampled_lacks=lacks)
    if analyzed.lacks and context.calibration is not None and not is_observing(context):
        analyzed = _with_telling_samples(analyzed, state)
    traits = {each.name: each for each in analyzed.traits}
    findings = tuple(
        Finding(
            code="AOTC-N045",
            what=f"{traits[name].words} {what}: it is not proven",
            where=f"output {traits[name].output}",
        )
        for name, what in analyzed.lacks.items()
    )
    return replace(analyzed, findings=(*analyzed.findings, *findings))


def _with_telling_samples(analyzed: AnalyzedModel, state: BuildState) -> AnalyzedModel:
    """The calibration data among the references, if it shows what they do not."""
    runs = sampled_runs(analyzed, calibration_samples(analyzed, state), state)
    traits = [each for each in analyzed.traits if each.name in analyzed.lacks]
    left = lacks_in(traits, runs)
    if not runs or left.keys() >= analyzed.lacks.keys():
        return analyzed
    lacks = {name: what for name, what in analyzed.lacks.items() if name in left}
    return replace(analyzed, references=(*analyzed.references, *runs), lacks=lacks)


def lacks_in(traits: Sequence[OutputTraits], runs: Sequence[ReferenceRun]) -> dict[str, str]:
    """The outputs of which `runs` show nothing, each with what they answer."""
    found = {}
    for output in traits:
        if not output.reads:
            continue
        answers = [
            answer_of(
                output.of(values.load(run.outputs[output.output])),
                output.ends,
                {name: values.load(run.inputs[name]) for name in output.reads},
            )
            for run in runs
            if 0 not in run.sizes.values()
        ]
        lack = lack_of(answers, output.ends)
        if lack is not None and not lack.unsure:
            found[output.name] = lack.what
    return found


def judge_shown(analyzed: AnalyzedModel, plan: VariantPlan, places: DocumentPlaces) -> Judged:
    """AOTC-N046 for each output of a lower precision of which the plan's references show nothing.

    Such a precision changes numbers in floating point, and what is computed of these.
    """
    if plan.precision == "keep":
        return Judged()
    place = places.of(f"parity.{plan.precision}")
    computed = {each.name: each for each in analyzed.traits if each.computes}
    lacks = analyzed.lacks_of(plan).items()
    lacking = {name: what for name, what in lacks if name in computed}
    where = f"variant {plan.name}"
    return Judged(
        gates=tuple(
            Gate(
                name="shown",
                subject=f"{where}, {each.words}",
                status="failed" if name in lacking else "passed",
                limit="the answers compared show something",
                measured=lacking.get(name, ""),
                place=place,
            )
            for name, each in computed.items()
        ),
        breaches=tuple(
            AotcError(
                "AOTC-N046",
                f"{computed[name].words} {what}: in {plan.precision} it is not proven",
                where=where,
                expected="answers in which an error could be seen",
                found=what,
                place=place,
            )
            for name, what in lacking.items()
        ),
    )
