"""The trials of `--tune`: every candidate is built, proven and timed; see `choices`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aotc.contract.results.journal import Journal
from aotc.contract.results.tuning import TuningCandidate
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.planned_variants import accepts_run, wanted_variants
from aotc.stages.retrying.other_forms import first_refusal
from aotc.stages.retrying.settling import Settled
from aotc.stages.timing import Timed, time_alternately
from aotc.stages.tuning.choices import (
    candidate_spec,
    candidates,
    choose,
    has_lower_precision,
    without_measurements,
)
from aotc.stages.tuning.equal_candidates import first_equals
from aotc.stages.types import (
    AnalyzedModel,
    ProvenModel,
    ReferenceRun,
)
from aotc.stages.variant_plan import VariantPlan

# All stages from the optimizer to the proof.
RunStages = Callable[[AnalyzedModel, Sequence[VariantPlan], BuildOptions], Settled]

# A profile means the same on every host: a missing provider is an error, not a failed candidate.
_MISSING: Final = frozenset({"AOTC-P004", "AOTC-P007", "AOTC-P010"})


def try_candidates(
    analyzed: AnalyzedModel, options: BuildOptions, run_stages: RunStages
) -> tuple[TuningCandidate, ...]:
    """Prove and time every candidate; one that fails is excluded, whatever the error.

    Raises AOTC-O006 if none is left.
    """
    clock = options.clock
    reference = next(
        (run for run in analyzed.references if run.name == "opt"), analyzed.references[0]
    )
    table: list[TuningCandidate] = []
    proven: dict[str, dict[TuningCandidate, ProvenModel]] = {}
    asked = tuple(candidates(options.profile))
    for index, tried in enumerate(asked):
        with clock.stage("tune", f"{tried.variant} on {' '.join(tried.providers)}"):
            clock.reporter.count(index, len(asked), "candidates")
            try:
                made = _candidate(analyzed, tried, index, reference, options, run_stages)
                proven.setdefault(tried.variant, {})[tried] = made
            except AotcError as error:
                if error.code in _MISSING:
                    raise
                table.append(replace(tried, reason=error.line()[:500]))
    for by_candidate in proven.values():
        with clock.stage("tune", "timing"):
            table += measure(by_candidate, reference, options)
    order = {candidate: index for index, candidate in enumerate(candidates(options.profile))}
    table.sort(key=lambda row: order[without_measurements(row)])
    return choose(table)


def _candidate(
    analyzed: AnalyzedModel,
    tried: TuningCandidate,
    index: int,
    reference: ReferenceRun,
    options: BuildOptions,
    run_stages: RunStages,
) -> ProvenModel:
    """One candidate through all stages, in its own folder, at the sizes that are timed."""
    spec = candidate_spec(tried, options.profile)
    # A candidate that this host cannot run cannot be timed, and gets no faster companion.
    profile = replace(options.profile, variants=(spec,), unproven="refuse", max_variants=1)
    # What a candidate breaches is in the table of candidates, and is no breach of the build.
    with_subfolder = replace(
        options.with_subfolder(f"tune-{index}"), profile=profile, journal=Journal()
    )
    plans, _ = wanted_variants(analyzed.ranges, with_subfolder)
    if not plans:
        raise AotcError("AOTC-N002", "this host is not the target")
    plan = next(
        (planned for planned in plans if accepts_run(analyzed, planned, reference)), plans[0]
    )
    settled = run_stages(analyzed, [plan], with_subfolder)
    refusal = settled.attempts[plan.name].first
    if refusal and refusal.code == "AOTC-N001" and has_lower_precision(tried, options.profile):
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
    did not pass.
    """
    firsts = first_equals({candidate: item.lowered for candidate, item in proven.items()})
    tried = list(dict.fromkeys(firsts.values()))
    found = time_alternately(
        [proven[candidate].lowered for candidate in tried],
        reference,
        options,
        rounds=options.profile.tune.rounds,
        folder=options.work / f"measure-{tried[0].variant}",
        where=f"variant {tried[0].variant}",
    )
    timed = dict(zip(tried, found, strict=True))
    sizes = ", ".join(f"{name}={size}" for name, size in reference.sizes.items())
    rounds = options.profile.tune.rounds
    return tuple(_row(candidate, timed[firsts[candidate]], rounds, sizes) for candidate in proven)


def _row(candidate: TuningCandidate, timed: Timed, rounds: int, sizes: str) -> TuningCandidate:
    if isinstance(timed, AotcError):
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
