"""Trials of `--tune`: every candidate through the line and timed; `choices` says what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aotc.contract.results.tuning import TuningCandidate
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.planned_variants import takes, wanted_variants
from aotc.stages.retrying.other_forms import first_refusal
from aotc.stages.retrying.settling import Settled
from aotc.stages.timing import alternate
from aotc.stages.tuning.choices import bare, candidates, choose, spec_as
from aotc.stages.types import AnalyzedModel, ProvenModel, ReferenceRun, VariantPlan

# All stages from the optimizer to the proof.
RunStages = Callable[[AnalyzedModel, Sequence[VariantPlan], BuildOptions], Settled]

# A profile means the same on every host: what is missing is an error, and no other choice.
_NO_SUCH: Final = frozenset({"AOTC-P004", "AOTC-P007", "AOTC-P010"})


def try_all(
    analyzed: AnalyzedModel, options: BuildOptions, run_stages: RunStages
) -> tuple[TuningCandidate, ...]:
    """Prove and time every candidate; one that fails is out, whatever it fails on.

    Raises AOTC-O006 where none is left.
    """
    clock = options.clock
    reference = next(
        (each for each in analyzed.references if each.name == "opt"), analyzed.references[0]
    )
    table: list[TuningCandidate] = []
    proven: dict[str, dict[TuningCandidate, ProvenModel]] = {}
    for index, tried in enumerate(candidates(options.profile)):
        with clock.stage("tune", f"{tried.variant} on {' '.join(tried.providers)}"):
            try:
                made = _candidate(analyzed, tried, index, reference, options, run_stages)
                proven.setdefault(tried.variant, {})[tried] = made
            except AotcError as error:
                if error.code in _NO_SUCH:
                    raise
                table.append(replace(tried, reason=error.line()[:500]))
    for each in proven.values():
        with clock.stage("tune", "timing"):
            table += measure(each, reference, options)
    order = {each: index for index, each in enumerate(candidates(options.profile))}
    table.sort(key=lambda each: order[bare(each)])
    return choose(table)


def _candidate(
    analyzed: AnalyzedModel,
    tried: TuningCandidate,
    index: int,
    reference: ReferenceRun,
    options: BuildOptions,
    run_stages: RunStages,
) -> ProvenModel:
    """One candidate through the line, in a folder of its own, at the sizes that are timed."""
    spec = spec_as(tried, options.profile)
    # What cannot be run here cannot be timed here; and no quicker form stands beside it.
    profile = replace(options.profile, variants=(spec,), unproven="refuse", max_variants=1)
    apart = replace(options.apart(f"tune-{index}"), profile=profile)
    plans, _ = wanted_variants(analyzed.ranges, apart)
    if not plans:
        raise AotcError("AOTC-N002", "this host is not the target")
    plan = next((each for each in plans if takes(analyzed, each, reference)), plans[0])
    settled = run_stages(analyzed, [plan], apart)
    made = settled.variants
    for item, error in made.failed:
        raise first_refusal(settled.attempts, error, item)
    if not made.proven:
        raise AotcError("AOTC-P002", "the fallback policy leaves this candidate out")
    return made.proven[0]


def measure(
    proven: Mapping[TuningCandidate, ProvenModel], reference: ReferenceRun, options: BuildOptions
) -> tuple[TuningCandidate, ...]:
    """Run the candidates of one variant in turn on one fixture, in one process: their medians."""
    tried = list(proven)
    value = alternate(
        [item.lowered for item in proven.values()],
        reference,
        options,
        rounds=options.profile.tune.rounds,
        folder=options.work / f"measure-{tried[0].variant}",
        where=f"variant {tried[0].variant}",
    )
    sizes = ", ".join(f"{name}={size}" for name, size in reference.sizes.items())
    return tuple(
        replace(
            each,
            passed=True,
            median_seconds=median,
            minimum_seconds=least,
            rounds=options.profile.tune.rounds,
            sizes=sizes,
        )
        for each, (median, least) in zip(tried, value, strict=True)
    )
