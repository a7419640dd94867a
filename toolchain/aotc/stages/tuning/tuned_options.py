"""The options of a build with every variant as trials chose it, or as earlier ones did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from aotc.contract.finding import Finding
from aotc.contract.profile import Profile
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.results.tuning import TuningCandidate
from aotc.errors import AotcError
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.available import require_providers
from aotc.stages.planning.request import BuildRequest
from aotc.stages.reuse.cached_build import CachedBuild, cache_slot, cached_artifact
from aotc.stages.tuning.candidate_trials import try_candidates
from aotc.stages.tuning.choices import choose, profile_with_choices, stated_orders
from aotc.stages.tuning.kept_trials import RunStages
from aotc.stages.tuning.precision_forms import is_auto, wants_auto
from aotc.stages.tuning.tuned_evidence import read_tuning
from aotc.stages.types import AnalyzedModel, Artifact


@record
class Tuned:
    """Options with the variants that trials chose; the model, if it was analyzed for them.

    `measured_on` is the sha256 of the measured model, if another build measured it.  `slot` is
    where the cache keeps this build, and `cached` what is there.
    """

    options: BuildOptions
    model: AnalyzedModel | None = None
    table: tuple[TuningCandidate, ...] = ()
    measured_on: str = ""
    slot: CachedBuild | None = None
    cached: tuple[Artifact, Evidence] | None = None


def tuned_or_cached(
    request: BuildRequest,
    source: str | None,
    options: BuildOptions,
    folder: Path,
    prepare: Callable[[BuildOptions], AnalyzedModel],
    run_stages: RunStages,
) -> Tuned:
    """`tuned`, and the build of that choice if the cache has it, with its payload in `folder`.

    `source` is the model's digest; without one nothing is cached.  `--tune` always measures; what
    `precision: auto` alone chose is part of what is cached.
    """
    chosen_once = wants_auto(options.profile) and not request.tune and request.tuned_from is None
    slot = cache_slot(source, request.name, options) if chosen_once else None
    cached = cached_artifact(slot, folder, options) if slot is not None else None
    if cached is not None:
        evidence = cached[1]
        return Tuned(
            options=options,
            table=evidence.tuning,
            measured_on=evidence.tuned_on,
            slot=slot,
            cached=cached,
        )
    made = tuned(request, options, prepare, run_stages)
    if slot is None:
        slot = cache_slot(source, request.name, made.options)
        cached = cached_artifact(slot, folder, made.options) if slot is not None else None
    return replace(made, slot=slot, cached=cached)


def tuned(
    request: BuildRequest,
    options: BuildOptions,
    prepare: Callable[[BuildOptions], AnalyzedModel],
    run_stages: RunStages,
) -> Tuned:
    """Choose among the profile's candidates if the request or the profile asks for it.

    `prepare` imports and analyzes the model.  Raises AOTC-O006 if no candidate passes or evidence
    does not fit, P004 and P007 if a chosen provider is missing.
    """
    profile = options.profile
    with_orders = replace(options, budget_orders=stated_orders(profile))
    model, measured_on = None, ""
    if request.tuned_from is not None:
        measured, measured_on = read_tuning(Path(request.tuned_from))
        table = choose(measured)
    elif request.tune or wants_auto(profile):
        model = prepare(with_orders)
        try:
            table = try_candidates(model, with_orders, run_stages, tune=request.tune)
        except AotcError as error:
            if request.tune or error.code != "AOTC-O006":
                raise
            # Not even the model's own precision: the build itself says of each gate why not.
            return Tuned(options=options, model=model)
    else:
        return Tuned(options=options)
    options = replace(with_orders, profile=profile_with_choices(profile, table))
    require_providers(options.profile.variants, options)
    return Tuned(options=options, model=model, table=table, measured_on=measured_on)


def precision_findings(evidence: Evidence, profile: Profile) -> Iterator[Finding]:
    """What `auto` came to in each variant: AOTC-O019, N035 and N036.

    `profile` is as it was asked for.
    """
    for row in evidence.tuning:
        if not row.chosen or not is_auto(profile, row.variant):
            continue
        where = f"variant {row.variant}"
        others = [
            each
            for each in evidence.tuning
            if each.variant == row.variant and each.precision != "keep"
        ]
        if row.precision == "keep":
            yield Finding(code="AOTC-O019", what=_why_kept(others)[:1000], where=where)
        elif row.median_seconds is None:
            yield Finding(
                code="AOTC-N035",
                what=f"{_form_text(row)} is the first of those that pass, in the order in which "
                "they are tried: this host could not time them",
                where=where,
            )
        if row.kept:
            nodes = f"{len(row.kept)} node{'s' * (len(row.kept) > 1)}"
            by_time = " (the time of the search was over, so a quicker host may keep fewer)"
            ended = by_time if row.search_ended == "time" else ""
            what = f"{_form_text(row)} passes with {nodes} in float32{ended}: {', '.join(row.kept)}"
            yield Finding(
                code="AOTC-N036",
                what=what[:1000],
                where=where,
            )


def _why_kept(others: list[TuningCandidate]) -> str:
    if not others:
        return "the model's own precision is kept: its first provider has no quicker one"
    said = (
        f"{_form_text(row)} {'is not quicker' if row.passed else f'is not taken: {row.reason}'}"
        for row in others
    )
    return f"the model's own precision is kept; {'; '.join(said)}"


def _form_text(row: TuningCandidate) -> str:
    return row.precision if row.form == "auto" else f"{row.precision} {row.form}"
