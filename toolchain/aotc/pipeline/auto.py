"""`precision: auto`: what the forms of lower precisions take, and the quickest that passes.

All forms are lowered and timed first, as that is cheap; then the quickest is proven, and only where
it fails the next one.  A host that cannot run a variant proves them in the order of its provider.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.pipeline.attempts import Steps
from aotc.pipeline.blame import inexact_answers
from aotc.pipeline.context import BuildState
from aotc.pipeline.integer_products import is_companion
from aotc.pipeline.integers import goal_of, has_samples
from aotc.pipeline.plan import accepts_run, wanted_variants
from aotc.pipeline.prove import platform_mismatch, saturation_mismatch
from aotc.pipeline.shown import judge_shown
from aotc.pipeline.timing import seconds_by_turns
from aotc.pipeline.tune import (
    RAISED,
    Choice,
    candidates,
    choice_of,
    ended_by,
    first_equals,
    passing_form,
    require_lowered,
    title_of,
    trial_profile,
    trials_of,
    try_candidates,
    with_stated_orders,
)
from aotc.pipeline.types import (
    AnalyzedModel,
    LoweredModel,
    LoweredVariants,
    ReferenceRun,
    VariantPlan,
)
from aotc.spec.evidence import TuningCandidate
from aotc.spec.precision import BlockSettings, Goal, ParitySpec
from aotc.spec.shapes import sizes_in_words

# Timed rounds at least and at most.
_ROUNDS: Final = (5, 15)
# What gains less is not worth other answers; of two that differ by less, the first is taken.
_NO_GAIN: Final = 0.97
# Trials may take so many times as long as what came before them, and some seconds more.
_TIMES_BEFORE: Final = 0.8
_SECONDS_MORE: Final = 6.0
# With less time left, nodes to blame are not searched.
_LEAST_SEARCH_SECONDS: Final = 2.0
# A variant that goes through all stages but the proof.
Lowers = Callable[[Sequence[VariantPlan], BuildState], LoweredVariants]


@record
class _Opened:
    """A candidate that was lowered: its variants, and the one that takes calls on this host."""

    state: BuildState
    plans: tuple[VariantPlan, ...]
    made: LoweredVariants
    runs: LoweredModel


class _Budget:
    """The seconds that trials may take: as stated, else by what came before them."""

    def __init__(self, state: BuildState) -> None:
        stated = state.context.profile.tune.seconds
        before = state.clock.elapsed()
        self.seconds = _TIMES_BEFORE * before + _SECONDS_MORE if stated is None else stated
        self._ends = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def spent(self) -> str:
        """Why something was not tried."""
        return f"not tried: the {self.seconds:.0f} s for trials had passed (tune.seconds)"


def choose_precisions(analyzed: AnalyzedModel, state: BuildState, lowers: Lowers) -> Steps[Choice]:
    """The context with the form of a precision that each variant in `auto` takes, and the trials.

    `keep` where no other gains and passes.  Raises what says nothing of a form: data that cannot be
    used, a missing provider, R999.
    """
    context = state.context
    state = state.asking(with_stated_orders(context))
    asked = candidates(context.profile, tune=False)
    reference = next(
        (run for run in analyzed.references if run.name == "opt"), analyzed.references[0]
    )
    table: list[TuningCandidate] = []
    made: LoweredVariants | None = None
    budget = _Budget(state)
    for name in dict.fromkeys(tried.variant for tried in asked):
        rows = [tried for tried in asked if tried.variant == name]
        opened, failed = _opened(analyzed, rows, reference, state, lowers, budget)
        if opened is None:
            try:
                only = replace(
                    context.profile,
                    variants=tuple(spec for spec in context.profile.variants if spec.name == name),
                )
                asking = state.asking(replace(state.context, profile=only))
                table += yield from try_candidates(analyzed, asking, tune=False)
            except AotcError as error:
                if error.code != "AOTC-O006":
                    raise
                # Not even the model's own precision: the build itself says of each gate why not.
                return Choice(context=context)
            continue
        found, made = yield from _quickest(opened, reference, state, budget)
        order = {_key(tried): number for number, tried in enumerate(rows)}
        table += sorted([*found, *failed], key=lambda row: order[_key(row)])
    choice = choice_of(context, tuple(table))
    # What was lowered and is taken as it was need not be lowered again.
    return replace(choice, lowered=made) if len(context.profile.variants) == 1 else choice


def _key(tried: TuningCandidate) -> tuple[str, str, BlockSettings | None]:
    return tried.precision, tried.form, tried.blocks


def _opened(
    analyzed: AnalyzedModel,
    rows: Sequence[TuningCandidate],
    reference: ReferenceRun,
    state: BuildState,
    lowers: Lowers,
    budget: _Budget,
) -> tuple[dict[TuningCandidate, _Opened] | None, list[TuningCandidate]]:
    """The candidates that could be lowered, and rows of the others with the reason.

    None in place of the first where this host cannot run them, or `keep` cannot be lowered.
    """
    opened: dict[TuningCandidate, _Opened] = {}
    failed: list[TuningCandidate] = []
    for index, tried in enumerate(rows):
        if opened and not budget.left:
            failed.append(replace(tried, reason=budget.spent))
            continue
        profile = trial_profile(tried, state.context.profile, tune=False)
        own = state.trial(f"auto-{tried.variant}-{index}", replace(state.context, profile=profile))
        with state.clock.stage("tune", title_of(tried, tune=False)):
            state.clock.reporter.count(index, len(rows), "forms")
            try:
                made = _lowered(analyzed, tried, reference, own, lowers)
            except AotcError as error:
                if tried.precision == "keep":
                    return None, []
                if error.code in RAISED:
                    raise
                failed.append(replace(tried, reason=error.line()[:500]))
                continue
        if made is None:
            return None, []
        opened[tried] = made
    return opened, failed


def _require_other_form(tried: TuningCandidate, state: BuildState) -> None:
    """Raise AOTC-I072 for a form that is another one's without calibration data."""
    if (tried.precision, tried.form) == ("int8", "mixed") and not has_samples(state.context):
        what = "without samples it is the dynamic form"
        raise AotcError("AOTC-I072", what, where="int8 mixed", found="no data")


def _lowered(
    analyzed: AnalyzedModel,
    tried: TuningCandidate,
    reference: ReferenceRun,
    state: BuildState,
    lowers: Lowers,
) -> _Opened | None:
    """A candidate that was lowered; None where this host does not run it."""
    plans, _ = wanted_variants(analyzed.ranges, state.context)
    if not plans or platform_mismatch(state.context):
        return None
    first = next((each for each in plans if accepts_run(analyzed, each, reference)), plans[0])
    shown = judge_shown(analyzed, first, state.context.places).breaches
    if shown and tried.precision != "keep":
        # Whatever it answers: nothing of it would be proven.
        raise shown[0]
    _require_other_form(tried, state)
    ordered = (first, *(each for each in plans if each is not first))
    made = lowers(ordered, state)
    for _, refusal in made.refused:
        raise refusal
    mine = [each for each in made.lowered if each.plan.buckets == first.buckets]
    own = next(each for each in mine if each.plan.name == first.name)
    require_lowered(own.plan, first, made.findings)
    runs = next((each for each in mine if is_companion(each.plan, own.plan)), own)
    if runs.why_not_run:
        return None
    if why := saturation_mismatch(runs, state.context):
        raise AotcError("AOTC-N002", why, where=f"variant {runs.plan.name}")
    return _Opened(state=state, plans=ordered, made=made, runs=runs)


def _quickest(
    opened: Mapping[TuningCandidate, _Opened],
    reference: ReferenceRun,
    state: BuildState,
    budget: _Budget,
) -> Steps[tuple[list[TuningCandidate], LoweredVariants | None]]:
    """The rows of `opened`, one chosen: proven are those before the first that passes.

    And what was lowered of that, if it is taken as it was.
    """
    keep = next(tried for tried in opened if tried.precision == "keep")
    goal = goal_of(opened[keep].runs.plan, state.context)
    word = "faster" if goal == "speed" else "smaller"
    rows = _timed({tried: each.runs for tried, each in opened.items()}, reference, state)
    # Seconds of a call, or bytes of weights.
    costs = {tried: _cost(rows[tried], opened[tried].runs, goal) for tried in opened}
    rows[keep] = replace(rows[keep], passed=not rows[keep].reason)
    runs = [tried for tried in opened if not rows[tried].reason]
    waiting = [tried for tried in runs if costs[tried] <= _NO_GAIN * costs[keep]]
    for tried in runs:
        if tried not in waiting and tried is not keep:
            ratio = costs[tried] / costs[keep]
            rows[tried] = replace(rows[tried], reason=f"not {word}: {ratio:.2f} of keep")
    best, refused = keep, list[TuningCandidate]()
    # Each as it is; then those that are quicker than what passed, with what they must keep.
    for pending, searches in ((waiting, False), (refused, True)):
        while pending:
            least = min(costs[tried] for tried in pending)
            if best is not keep and (costs[best] * _NO_GAIN <= least or not budget.left):
                break
            if searches and budget.left < _LEAST_SEARCH_SECONDS:
                break
            # Of those that cost the same, the first.
            tried = next(each for each in pending if costs[each] * _NO_GAIN <= least)
            pending.remove(tried)
            what = "nodes to keep" if searches else "proof"
            with state.clock.stage("tune", f"{title_of(tried, tune=False)}, {what}"):
                proof = _proven(rows[tried], opened[tried], goal, budget.left if searches else 0)
                rows[tried], lowered, inexact = yield from proof
            if lowered is None:
                refused += [tried] if inexact and not searches else []
                continue
            if rows[tried].keep_float32:
                both = {keep: opened[keep].runs, tried: lowered}
                again = _timed(both, reference, state)
                share = _cost(again[tried], lowered, goal) / _cost(again[keep], both[keep], goal)
                costs[tried] = share * costs[keep]
                rows[tried] = replace(rows[tried], median_seconds=again[tried].median_seconds)
                if costs[tried] > _NO_GAIN * costs[keep]:
                    reason = f"not {word} with what it keeps: {share:.2f} of keep"
                    rows[tried] = replace(rows[tried], passed=False, reason=reason)
                    continue
            if costs[tried] < costs[best]:
                best = tried
    for tried in waiting:
        rows[tried] = replace(rows[tried], reason=f"not proven: another is {word}")
    for tried, row in rows.items():
        if row.passed and tried not in (best, keep):
            rows[tried] = replace(row, reason=f"another is {word}")
    rows[best] = replace(rows[best], chosen=True)
    return list(rows.values()), None if rows[best].keep_float32 else opened[best].made


def _cost(row: TuningCandidate, lowered: LoweredModel, goal: Goal) -> float:
    if goal == "speed":
        return math.inf if row.median_seconds is None else row.median_seconds
    return float(lowered.memory.weights_bytes)


def _timed(
    lowered: Mapping[TuningCandidate, LoweredModel], reference: ReferenceRun, state: BuildState
) -> dict[TuningCandidate, TuningCandidate]:
    """A row with the median seconds of a call of each, by turns; equal ones have the first's.

    One whose captured graph is refused has the reason instead.
    """
    firsts = first_equals(lowered)
    tried = list(dict.fromkeys(firsts.values()))
    name = tried[0].variant
    alone = all(lowered[each].plan.cpu_only for each in tried)
    with state.clock.stage("tune", f"{name}, timing"):
        seconds = seconds_by_turns(
            [lowered[each] for each in tried],
            reference,
            state,
            rounds=_ROUNDS,
            one_thread=alone,
            folder=state.work / f"times-{name}-{len(list(state.work.iterdir()))}",
            where=f"variant {name}",
        )
    timed = dict(zip(tried, seconds, strict=True))
    rows = {}
    for each, first in firsts.items():
        found = timed[first]
        if isinstance(found, AotcError):
            if found.code in RAISED:
                raise found
            rows[each] = replace(each, reason=found.line()[:500])
            continue
        rows[each] = replace(
            each,
            median_seconds=statistics.median(found),
            minimum_seconds=min(found),
            rounds=len(found),
            clock="processor" if alone else "wall",
            sizes=sizes_in_words(reference.sizes),
        )
    return rows


def _proven(
    row: TuningCandidate, opened: _Opened, goal: Goal, seconds: float
) -> Steps[tuple[TuningCandidate, LoweredModel | None, bool]]:
    """The row of a candidate that was proven, what runs of it, and whether it is too inexact.

    None runs where it does not pass.  In `seconds`, unless they are 0, nodes to keep are searched.
    """
    profile = opened.state.context.profile
    parity = profile.parity
    if goal == "speed" and parity.int4 == ParitySpec().int4:
        # For speed alone, nobody asked for answers less exact than those of int8.
        parity = replace(parity, int4=parity.int8)
    limits, blame = profile.limits, replace(profile.blame, trials=0)
    if seconds:
        limits = replace(limits, seconds=min(limits.seconds, max(1, int(seconds))))
        blame = profile.blame
    limited = replace(profile, parity=parity, limits=limits, blame=blame)
    state = opened.state.below("searched" if seconds else "proven")
    own = state.asking(replace(state.context, profile=limited))
    try:
        made = yield from passing_form(opened.plans, own, opened.made, others=False)
    except AotcError as error:
        if error.code in RAISED:
            raise
        found = replace(
            row, reason=error.line()[:500], trials=trials_of(own), search_ended=ended_by(own)
        )
        return found, None, bool(inexact_answers(error))
    found = replace(
        row,
        passed=True,
        reason="",
        keep_float32=made.kept,
        trials=trials_of(own),
        search_ended=ended_by(own),
    )
    return found, made.proven.lowered, False
