"""The nodes to blame where a variant in a lower precision is too inexact, and the texts on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline.blame_trials import SEARCHED, trial_request
from aotc.pipeline.context import BuildState
from aotc.pipeline.proof_job import compared_references, compared_runs
from aotc.pipeline.prove import tolerance_of
from aotc.pipeline.types import LoweredModel, ProvenModel
from aotc.session.worker import steps_of
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Blamed, OutputChange
from aotc.spec.payload import Finding
from aotc.spec.precision import kept_line
from aotc.spec.variant import SessionSpec

# Answers that differ: by the tolerance, by padding, and by the gates of outputs.
INEXACT: Final = frozenset({"AOTC-N001", "AOTC-N007", "AOTC-N020", "AOTC-N021"})
_JOB: Final = "aotc.pipeline.blame_trials:blame_job"
# Of the time that a step may take: what is left is for its last trial to end.
_SHARE_OF_TIME: Final = 0.8
# A fix that is longer names the table instead.
_LONGEST_LINE: Final = 2000
# Errors as large as can be told are not measured.
_UNMEASURED: Final = 1e300


def blame(lowered: LoweredModel, error: AotcError, state: BuildState) -> Blamed | None:
    """Which nodes make a variant breach its gates with `error`, within the profile's trials.

    None where the variant computes in the model's own precision, where `error` is of something
    else, where the profile wants no trials, and where the search itself fails, which the finding
    AOTC-N033 tells.  The same form of a variant is searched once, and none after such a failure.
    All searches for a variant share the profile's trials: where none is left, what was found last
    with the same nodes kept before holds for its other forms too.
    """
    plan = lowered.plan
    if plan.precision not in SEARCHED or not state.context.profile.blame.trials:
        return None
    breaches = inexact_answers(error)
    if not breaches:
        return None
    key = (f"{plan.name} {plan.precision}", lowered.model)
    if key in state.blames:
        return state.blames[key]
    earlier = [found for (name, _), found in state.blames.items() if name == key[0]]
    if None in earlier:
        return None
    if not (left := state.trials_left(key[0])):
        return next(
            (
                each
                for each in reversed(earlier)
                if each and each.keep_float32_before == plan.keep_float32
            ),
            None,
        )
    asked = trial_request(lowered, state)
    if asked is None:
        return None
    state.blames[key] = _searched(lowered, asked, breaches, left, state)
    return state.blames[key]


def precision_is_to_blame(lowered: LoweredModel, error: AotcError, state: BuildState) -> bool:
    """Whether the variant is exact enough with nodes in float32 that it computes otherwise.

    At the same level of the optimizer, so that no lower level is what it lacks.
    """
    blamed = blame(lowered, error, state)
    return blamed is not None and bool(blamed.all_pass)


def inexact_answers(error: AotcError) -> list[AotcError]:
    """The breaches among `error` and its further ones that are of how exact answers are."""
    return [each for each in error.every() if each.code in INEXACT]


def _searched(
    lowered: LoweredModel,
    asked: Json,
    breaches: Sequence[AotcError],
    trials: int,
    state: BuildState,
) -> Blamed | None:
    context = state.context
    plan = lowered.plan
    where = f"variant {plan.name}"
    folder = state.work / f"blame-{plan.name}-{len(state.blames)}"
    state.announce(f"searching for the nodes that cause the error in {where}")
    state.clock.reporter.follow("trials", steps_of(folder, "trials"))
    try:
        value = state.workers.run(
            _JOB,
            {
                **asked,
                "kept_before": [],
                "source": {
                    "model": str(lowered.analyzed.source.graph),
                    "weights": str(lowered.analyzed.source.weights),
                },
                "tolerance": encode(tolerance_of(lowered, context)),
                "gates": encode(context.profile.gates),
                "inputs": [encode(each) for each in lowered.analyzed.source.inputs],
                "padding": encode(lowered.analyzed.padding),
                "references": _references(lowered, breaches),
                "trials": trials,
                "seconds": context.profile.limits.seconds * _SHARE_OF_TIME,
            },
            folder=folder,
            where=where,
        ).value
    except AotcError as failure:
        state.journal.noticed((_not_searched(failure.line(), where),))
        return None
    if not value["reproduced"]:
        why = "the undivided graph passes, so something else than precision makes the error"
        state.journal.noticed((_not_searched(why, where),))
        return None
    if value["why_not"]:
        state.journal.noticed((_not_searched(value["why_not"], where),))
    return _blamed(lowered, value, asked, trials)


def _blamed(lowered: LoweredModel, value: Json, asked: Json, trials: int) -> Blamed:
    plan, found = lowered.plan, value["found"]
    kept = tuple(found["kept"])
    return Blamed(
        variant=plan.name,
        precision=plan.precision,
        keep_float32=kept,
        keep_float32_before=plan.keep_float32,
        first=value["first"],
        worst=value["worst"],
        candidates=value["candidates"],
        limit_ratio_before=found["before"],
        limit_ratio_after=found["after"],
        outputs=tuple(decode(OutputChange, each) for each in value["outputs"]),
        trials=found["trials"],
        max_trials=trials,
        minimal=found["minimal"],
        all_pass=found["all_pass"],
        search_ended=found["ended"],
        optimization=decode(SessionSpec, asked["session"]).optimization,
        profile=kept_line((*plan.keep_float32, *kept)) if kept else "",
    )


def _references(lowered: LoweredModel, breaches: Sequence[AotcError]) -> list[Json]:
    """The fixtures that the proof compared, those that failed first."""
    runs = compared_runs(lowered.analyzed, lowered.plan)
    failed = {
        reference.name
        for reference, _ in runs
        for each in breaches
        if each.where.endswith(f"fixture {reference.name}")
    }
    return compared_references(sorted(runs, key=lambda each: each[0].name not in failed))


def _not_searched(why: str, where: str) -> Finding:
    return Finding(code="AOTC-N033", what=why[:500], where=where)


# What a refusal and the evidence say of the nodes to blame.


def with_nodes_to_blame(error: AotcError, lowered: LoweredModel, state: BuildState) -> AotcError:
    """The refusal of a variant, with the nodes to blame if precision makes its error.

    Its fix is then the line for the profile, where a set of nodes was found, and AOTC-N031 or N034
    among the further ones says what was tried.
    """
    breaches = inexact_answers(error)
    blamed = blame(lowered, error, state) if breaches else None
    if blamed is None or not blamed.all_pass:
        return error
    state.journal.blames(blamed)
    further = _found(blamed) if _is_useful(blamed) else _not_found(blamed)
    rows = _changes(blamed)
    for each in breaches:
        each.fix = further.fix
        each.rows = each.rows or rows
    error.also = (*error.also, further)
    return error


def with_evidence_of_blame(proven: ProvenModel, state: BuildState) -> ProvenModel:
    """A variant that passes as nodes to blame were kept, with what was found in its evidence."""
    for blamed in reversed(state.blames.values()):
        if (
            blamed is not None
            and blamed.variant == proven.plan.name
            and blamed.precision == proven.plan.precision
            and blamed.keep_float32
            and set(blamed.keep_float32) <= set(proven.plan.keep_float32)
        ):
            state.journal.blames(blamed)
            return replace(proven, evidence=replace(proven.evidence, blamed=blamed))
    return proven


def _is_useful(blamed: Blamed) -> bool:
    return bool(blamed.keep_float32) and len(blamed.keep_float32) < blamed.candidates


def _found(blamed: Blamed) -> AotcError:
    count = len(blamed.keep_float32)
    line = blamed.profile
    if len(line) > _LONGEST_LINE:
        line = f"keep_float32, with the {count} nodes that the report lists under `blamed`"
    least = "all of these nodes are needed" if blamed.minimal else "a smaller set may exist"
    needed = "" if count == 1 else f", {least}"
    return AotcError(
        "AOTC-N031",
        f"{blamed.precision} is too inexact in {count} of {_nodes(blamed.candidates)}",
        where=f"variant {blamed.variant}",
        expected="errors within their limits",
        found=f"{_times(blamed.limit_ratio_before)} the limit, "
        f"and {_times(blamed.limit_ratio_after)} with {'it' if count == 1 else 'them'} in float32 "
        f"({_trials(blamed)}"
        f"{needed}{_ended(blamed)})",
        fix=f"Write in the profile, or in its variant {blamed.variant}: {line}",
        rows=_nodes_table(blamed),
    )


def _not_found(blamed: Blamed) -> AotcError:
    return AotcError(
        "AOTC-N034",
        f"{blamed.precision} is too inexact, and no small set of nodes was found that causes it",
        where=f"variant {blamed.variant}",
        expected=f"a set of fewer than {blamed.candidates} nodes to keep in float32",
        found=f"{_times(blamed.limit_ratio_before)} the limit, and within it with all of them in "
        f"float32 ({_trials(blamed)}{_ended(blamed)})",
        rows=_nodes_table(blamed),
    )


def _nodes_table(blamed: Blamed) -> list[Mapping[str, str]]:
    """One row for each node that is named, and what it is."""
    roles: dict[str, list[str]] = {}
    if _is_useful(blamed):
        for name in blamed.keep_float32:
            roles.setdefault(name, []).append("to keep in float32")
    if blamed.first:
        roles.setdefault(blamed.first, []).append("first out of tolerance")
    if blamed.worst:
        roles.setdefault(blamed.worst, []).append("adds most error")
    return [{"node": name, "is": ", ".join(words)} for name, words in roles.items()]


def _changes(blamed: Blamed) -> tuple[Mapping[str, str], ...]:
    """One row for each output: its largest errors before and after."""
    return tuple(
        {
            "output": each.output,
            "largest error": _figure(each.max_abs_before),
            "relative": _figure(each.max_rel_before),
            **(
                {
                    "with nodes in float32": _figure(each.max_abs_after),
                    "relative then": _figure(each.max_rel_after),
                }
                if _is_useful(blamed)
                else {}
            ),
        }
        for each in blamed.outputs
    )


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _trials(blamed: Blamed) -> str:
    return f"{blamed.trials} trial{'s' if blamed.trials != 1 else ''}"


def _ended(blamed: Blamed) -> str:
    """Why the search found no better; empty where it tried all that it tries."""
    ends = {"complete": "", "trials": ", stopped at the limit blame.trials"}
    return ends.get(
        blamed.search_ended, ", stopped at the time limit; a faster host may find fewer nodes"
    )


def _times(ratio: float | None) -> str:
    if ratio is None or ratio > _UNMEASURED:
        return "more than 1e300 times"
    return f"{ratio:.3g} times"


def _figure(value: float | None) -> str:
    if value is None or value > _UNMEASURED:
        return "-"
    return f"{value:.3g}"
