"""The trials of `--tune` and `precision: auto`: candidates are built, proven and timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.contract.profile import Profile
from aotc.contract.results.journal import Journal
from aotc.contract.results.nodes.blamed import SearchEnd
from aotc.contract.results.tuning import TuningCandidate
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.planned_variants import accepts_run, wanted_variants
from aotc.stages.retrying.other_forms import first_refusal
from aotc.stages.timing import Timed, time_alternately
from aotc.stages.tuning.choices import (
    candidate_spec,
    candidates,
    choose,
    has_lower_precision,
    without_measurements,
)
from aotc.stages.tuning.equal_candidates import first_equals
from aotc.stages.tuning.kept_trials import Passed, RunStages, passing_form
from aotc.stages.tuning.precision_forms import is_auto
from aotc.stages.types import (
    AnalyzedModel,
    ProvenModel,
    ReferenceRun,
)
from aotc.stages.variant_plan import VariantPlan

# A profile means the same on every host: a missing provider is an error, not a failed candidate.
_MISSING: Final = frozenset({"AOTC-P004", "AOTC-P007", "AOTC-P010"})
# Nor is what the user gave and cannot be used: calibration data, gates, labels, a function.
_UNUSABLE: Final = frozenset({*(f"AOTC-I07{n}" for n in range(3, 10)), "AOTC-N027"})
# And a bug of aotc says nothing of a candidate.
_RAISED: Final = _MISSING | _UNUSABLE | {"AOTC-R999"}

_NOT_TRIED: Final = "not tried: the one before it passes, and this host cannot time them"


def try_candidates(
    analyzed: AnalyzedModel, options: BuildOptions, run_stages: RunStages, *, tune: bool = True
) -> tuple[TuningCandidate, ...]:
    """Prove and time every candidate; one that fails is excluded.

    Without `tune` only the forms of `precision: auto` are tried; those that this host cannot run
    are proven as the profile allows, and not timed.  Raises AOTC-O006 if none is left, and what
    says nothing of a candidate: a missing provider, data that cannot be used, R999.
    """
    clock = options.clock
    reference = next(
        (run for run in analyzed.references if run.name == "opt"), analyzed.references[0]
    )
    table: list[TuningCandidate] = []
    proven: dict[str, dict[TuningCandidate, ProvenModel]] = {}
    asked = candidates(options.profile, tune=tune)
    taken: set[str] = set()
    for index, tried in enumerate(asked):
        if tried.variant in taken:
            table.append(replace(tried, reason=_NOT_TRIED))
            continue
        with clock.stage("tune", _title(tried, tune=tune)):
            clock.reporter.count(index, len(asked), "candidates")
            subfolder = replace(
                options.with_subfolder(f"tune-{index}"),
                profile=_trial_profile(tried, options.profile, tune=tune),
                # What a candidate breaches is in the table, and is no breach of the build.
                journal=Journal(),
                blames={},
                shared_trials=True,
            )
            try:
                made = _candidate(
                    analyzed, tried, reference, options.profile, subfolder, run_stages
                )
                options.blames.update(subfolder.blames)
                found = replace(
                    tried, kept=made.kept, trials=_trials(subfolder), search_ended=_ended(subfolder)
                )
                proven.setdefault(tried.variant, {})[found] = made.proven
                if tried.precision != "keep" and made.proven.parity.status == "not-run":
                    taken.add(tried.variant)
            except AotcError as error:
                if error.code in _RAISED:
                    raise
                table.append(
                    replace(
                        tried,
                        trials=_trials(subfolder),
                        search_ended=_ended(subfolder),
                        reason=error.line()[:500],
                    )
                )
    for by_candidate in proven.values():
        with clock.stage("tune", "timing"):
            table += measure(by_candidate, reference, options)
    order = {candidate: index for index, candidate in enumerate(asked)}
    table.sort(key=lambda row: order[without_measurements(row)])
    return choose(table)


def _trials(options: BuildOptions) -> int:
    """How many sessions were run to find what a candidate must keep, in all its searches."""
    return sum(found.trials for found in options.blames.values() if found is not None)


def _ended(options: BuildOptions) -> SearchEnd:
    """By what its searches ended: by time, if one did."""
    ends = {found.ended for found in options.blames.values() if found is not None}
    if "time" in ends:
        return "time"
    return "trials" if "trials" in ends else "complete"


def _title(tried: TuningCandidate, *, tune: bool) -> str:
    form = "" if tried.form == "auto" else f" {tried.form}"
    providers = f" on {' '.join(tried.providers)}" if tune else ""
    precision = f" in {tried.precision}{form}" if not tune or tried.precision != "keep" else ""
    forms = [
        f", {name} {value}"
        for name, value in (("fusion", tried.fusion), ("layout", tried.layout))
        if value != "auto"
    ]
    return f"{tried.variant}{providers}{precision}{''.join(forms)}"


def _trial_profile(tried: TuningCandidate, profile: Profile, *, tune: bool) -> Profile:
    spec = candidate_spec(tried, profile)
    if is_auto(profile, tried.variant):
        # A quicker companion is what hosts like this one would take.
        trial = replace(profile, variants=(spec,))
    else:
        trial = replace(profile, variants=(spec,), max_variants=1)
    # A candidate that this host cannot run cannot be timed.
    return replace(trial, unproven="refuse") if tune else trial


def _candidate(
    analyzed: AnalyzedModel,
    tried: TuningCandidate,
    reference: ReferenceRun,
    profile: Profile,
    options: BuildOptions,
    run_stages: RunStages,
) -> Passed:
    """One candidate through all stages, in its own folder, at the sizes that are timed.

    `profile` is the whole build's, that of `options` the candidate's.  What `auto` tries is run at
    all sizes, as all must pass in it.
    """
    plans, _ = wanted_variants(analyzed.ranges, options)
    if not plans:
        raise AotcError("AOTC-N002", "this host is not the target")
    plan = next(
        (planned for planned in plans if accepts_run(analyzed, planned, reference)), plans[0]
    )
    if is_auto(profile, tried.variant) and tried.precision != "keep":
        others = [planned for planned in plans if planned is not plan]
        return passing_form(analyzed, [plan, *others], options, run_stages)
    return Passed(proven=_as_it_is(analyzed, tried, plan, profile, options, run_stages))


def _as_it_is(
    analyzed: AnalyzedModel,
    tried: TuningCandidate,
    plan: VariantPlan,
    profile: Profile,
    options: BuildOptions,
    run_stages: RunStages,
) -> ProvenModel:
    settled = run_stages(analyzed, [plan], options)
    refusal = settled.attempts[plan.name].first
    if refusal and refusal.code == "AOTC-N001" and has_lower_precision(tried, profile):
        # The forms that pass instead leave what is inexact to other providers.
        raise refusal
    made = settled.variants
    for item, error in made.failed:
        raise first_refusal(settled.attempts, error, item.plan, measured=True)
    for failed, error in made.refused:
        raise first_refusal(settled.attempts, error, failed)
    if not made.proven:
        raise AotcError("AOTC-P002", "the fallback policy leaves this candidate out")
    return made.proven[0]


def measure(
    proven: Mapping[TuningCandidate, ProvenModel], reference: ReferenceRun, options: BuildOptions
) -> tuple[TuningCandidate, ...]:
    """Median seconds of the candidates of one variant, run alternately on one fixture.

    Candidates that are the same have the time of the first; one whose captured graph is refused
    did not pass.  What was not proven by running it here has no time.
    """
    here = {candidate: item for candidate, item in proven.items() if item.parity.status == "passed"}
    firsts = first_equals({candidate: item.lowered for candidate, item in here.items()})
    tried = list(dict.fromkeys(firsts.values()))
    rounds = options.profile.tune.rounds
    found = (
        time_alternately(
            [here[candidate].lowered for candidate in tried],
            reference,
            options,
            rounds=rounds,
            folder=options.work / f"measure-{tried[0].variant}",
            where=f"variant {tried[0].variant}",
        )
        if tried
        else ()
    )
    timed = dict(zip(tried, found, strict=True))
    sizes = ", ".join(f"{name}={size}" for name, size in reference.sizes.items())
    return tuple(
        _row(candidate, timed[firsts[candidate]], rounds, sizes)
        if candidate in here
        else replace(candidate, passed=True)
        for candidate in proven
    )


def _row(candidate: TuningCandidate, timed: Timed, rounds: int, sizes: str) -> TuningCandidate:
    if isinstance(timed, AotcError):
        if timed.code in _RAISED:
            raise timed
        return replace(candidate, reason=timed.line()[:500])
    median, least = timed
    return replace(
        candidate,
        passed=True,
        median_seconds=median,
        minimum_seconds=least,
        rounds=rounds,
        sizes=sizes,
    )
