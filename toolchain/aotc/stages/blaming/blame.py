"""The nodes to blame where a variant in a lower precision is too inexact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.precision.kept_lines import kept_line
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.nodes.blamed import Blamed, OutputChange
from aotc.engine.job_steps import steps_of
from aotc.errors import AotcError
from aotc.stages.blaming.trial_requests import SEARCHED, trial_request
from aotc.stages.build_options import BuildOptions
from aotc.stages.prove import arithmetic_of
from aotc.stages.proving.compared_runs import compared_runs
from aotc.stages.types import LoweredModel

# Answers that differ: by the tolerance, by padding, and by the gates of outputs.
INEXACT: Final = frozenset({"AOTC-N001", "AOTC-N007", "AOTC-N020", "AOTC-N021"})
_JOB: Final = "aotc.stages.blaming.blame_job:blame_job"
# Of the time that a step may take: what is left is for its last trial to end.
_SHARE_OF_TIME: Final = 0.8


def blame(lowered: LoweredModel, error: AotcError, options: BuildOptions) -> Blamed | None:
    """Which nodes make a variant breach its gates with `error`, within the profile's trials.

    None where the variant computes in the model's own precision, where `error` is of something
    else, where the profile wants no trials, and where the search itself fails, which the finding
    AOTC-N033 tells.  The same form of a variant is searched once, and none after such a failure.
    All searches for a variant share the profile's trials: where none is left, what was found last
    with the same nodes kept before holds for its other forms too.
    """
    plan = lowered.plan
    if plan.precision not in SEARCHED or not options.profile.blame.trials:
        return None
    breaches = inexact_answers(error)
    if not breaches:
        return None
    key = (f"{plan.name} {plan.precision}", lowered.model)
    if key in options.blames:
        return options.blames[key]
    earlier = [found for (name, _), found in options.blames.items() if name == key[0]]
    if None in earlier:
        return None
    if not (left := options.trials_left(key[0])):
        return next(
            (each for each in reversed(earlier) if each and each.kept_before == plan.keep_float32),
            None,
        )
    asked = trial_request(lowered, options)
    if asked is None:
        return None
    options.blames[key] = _searched(lowered, asked, breaches, left, options)
    return options.blames[key]


def precision_is_to_blame(lowered: LoweredModel, error: AotcError, options: BuildOptions) -> bool:
    """Whether the variant is exact enough with nodes in float32 that it computes otherwise.

    At the same level of the optimizer, so that no lower level is what it lacks.
    """
    blamed = blame(lowered, error, options)
    return blamed is not None and bool(blamed.all_pass)


def inexact_answers(error: AotcError) -> list[AotcError]:
    """The breaches among `error` and its further ones that are of how exact answers are."""
    return [each for each in error.every() if each.code in INEXACT]


def _searched(
    lowered: LoweredModel,
    asked: Json,
    breaches: Sequence[AotcError],
    trials: int,
    options: BuildOptions,
) -> Blamed | None:
    plan = lowered.plan
    where = f"variant {plan.name}"
    folder = options.work / f"blame-{plan.name}-{len(options.blames)}"
    options.announce(f"searching the nodes to blame in {where}")
    options.clock.reporter.follow("trials", steps_of(folder, "trials"))
    try:
        value = options.workers.run(
            _JOB,
            {
                **asked,
                "kept_before": [],
                "source": {
                    "model": str(lowered.analyzed.source.graph),
                    "weights": str(lowered.analyzed.source.weights),
                },
                "tolerance": encode(_tolerance(lowered, options)),
                "gates": encode(options.profile.gates),
                "inputs": [encode(each) for each in lowered.analyzed.source.inputs],
                "padding": encode(lowered.analyzed.padding),
                "references": _references(lowered, breaches),
                "trials": trials,
                "seconds": options.profile.limits.seconds * _SHARE_OF_TIME,
            },
            folder=folder,
            where=where,
        ).value
    except AotcError as failure:
        options.journal.noticed((_not_searched(failure.line(), where),))
        return None
    if not value["reproduced"]:
        why = "the undivided graph passes, so something else than precision makes the error"
        options.journal.noticed((_not_searched(why, where),))
        return None
    if value["why_not"]:
        options.journal.noticed((_not_searched(value["why_not"], where),))
    return _blamed(lowered, value, asked, trials)


def _blamed(lowered: LoweredModel, value: Json, asked: Json, trials: int) -> Blamed:
    plan, found = lowered.plan, value["found"]
    kept = tuple(found["kept"])
    return Blamed(
        variant=plan.name,
        precision=plan.precision,
        kept=kept,
        kept_before=plan.keep_float32,
        first=value["first"],
        worst=value["worst"],
        candidates=value["candidates"],
        badness_before=found["before"],
        badness_after=found["after"],
        outputs=tuple(decode(OutputChange, each) for each in value["outputs"]),
        trials=found["trials"],
        most_trials=trials,
        minimal=found["minimal"],
        all_pass=found["all_pass"],
        ended=found["ended"],
        optimization=decode(SessionSpec, asked["session"]).optimization,
        profile=kept_line((*plan.keep_float32, *kept)) if kept else "",
    )


def _tolerance(lowered: LoweredModel, options: BuildOptions) -> Tolerance:
    tolerance: Tolerance = getattr(options.profile.parity, arithmetic_of(lowered))
    return tolerance


def _references(lowered: LoweredModel, breaches: Sequence[AotcError]) -> list[Json]:
    """The fixtures that the proof compared, those that failed first."""
    runs = compared_runs(lowered.analyzed, lowered.plan)
    failed = {
        reference.name
        for reference, _ in runs
        for each in breaches
        if each.where.endswith(f"fixture {reference.name}")
    }
    ordered = sorted(runs, key=lambda each: each[0].name not in failed)
    return [
        {
            "name": reference.name,
            "sizes": dict(reference.sizes),
            "wanted": dict(wanted),
            "inputs": {name: str(path) for name, path in reference.inputs.items()},
            "outputs": {name: str(path) for name, path in reference.outputs.items()},
        }
        for reference, wanted in ordered
    ]


def _not_searched(why: str, where: str) -> Finding:
    return Finding(code="AOTC-N033", what=why[:500], where=where)
