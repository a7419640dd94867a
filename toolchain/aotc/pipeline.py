"""The build pipeline: the only place where the order of stages is written."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from aotc.caching.cache import BuildCache
from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.results.reports import BuildReport
from aotc.contract.results.tuning import TuningCandidate
from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.trust.attestations import instant
from aotc.contract.trust.signer import Signer
from aotc.engine.worker_pool import Workers
from aotc.errors import AotcError
from aotc.files.failures import cannot_write, translated_errors
from aotc.files.replacing import NEW, put_in_place
from aotc.files.work_folders import prepare_output, work_folder
from aotc.host.probe import probe
from aotc.records import record, replace
from aotc.runtime.rehearsal import Staged, rehearse
from aotc.signing import provenance, sbom
from aotc.signing.keys.signer_loading import load_signer
from aotc.signing.sealing import seal
from aotc.stages.analyze import analyze
from aotc.stages.build_options import BuildOptions
from aotc.stages.claim import claim
from aotc.stages.clock import Clock
from aotc.stages.fallback import finding_of
from aotc.stages.importing import import_model
from aotc.stages.lower import lower
from aotc.stages.optimize import optimize, optimize_ahead
from aotc.stages.optimizing.integer_products import left_out
from aotc.stages.package import digest_weights, package
from aotc.stages.partition import partition
from aotc.stages.planning.available import require_providers
from aotc.stages.planning.planned_variants import wanted_variants
from aotc.stages.planning.profile_overrides import asked_profile, refuse_artifact, target_of
from aotc.stages.planning.request import BuildRequest, called_with
from aotc.stages.planning.stated import stated_ranges
from aotc.stages.prove import prove
from aotc.stages.retrying.empty_sizes import fails_empty, not_empty
from aotc.stages.retrying.other_forms import Attempt, drop_failed, instead_of, slowed_down
from aotc.stages.retrying.settling import Ahead, Settled, settle
from aotc.stages.reuse.cached_build import keep, place_of, take
from aotc.stages.reuse.content_digests import model_digest
from aotc.stages.reuse.source_digest import source_digest
from aotc.stages.specialize import specialize
from aotc.stages.tuning.candidate_trials import try_all
from aotc.stages.tuning.choices import asked_specs, choose, resolved, stated_orders
from aotc.stages.tuning.tuned_evidence import tuned_on_another, tuning_of
from aotc.stages.types import (
    AnalyzedModel,
    Artifact,
    LoweredModel,
    ProvenModel,
    ProvenVariants,
    SignedArtifact,
    SourceModel,
    VariantPlan,
)

# What the jobs of every build import, in their order; the first does so itself.
BACKGROUND_IMPORTS: Final = (
    "aotc.probing.analysis",
    "aotc.stages.optimize",
    "aotc.stages.prove",
    "aotc.runtime.rehearsal_jobs",
)
_NOTHING: Final[Ahead] = {}


@called_with(BuildRequest)
def build(request: BuildRequest) -> BuildReport:
    """Build a signed artifact from an ONNX model, and prove it against the model.

    `model` is a path, or the bytes of a self-contained model.  `dims` bounds or fixes dims by
    name (`8`, `"1..8"`), over the profile's.  With `cache` a build that was made before is taken
    from the user's cache, and a new one is kept there.  `output` defaults to `NAME.aotc` in the
    working directory.  `tune` measures the profile's candidates and takes the quickest;
    `tuned_from`, an artifact or its evidence, takes what was quickest then.  Without `key` the
    user's development key signs.  `builder_id` (a URI; else $AOTC_BUILDER_ID), `invocation_id` and
    `release`, a version, stand in the provenance; the model's `licence` in the bill of materials.
    `workers` run the jobs, and go on; else own ones are started.
    Raises `AotcError`: exit status 3 where the input must be mended, 1 where a gate of the profile
    failed; nothing is left at `output` then.
    """
    refuse_artifact(request.model)
    began, clock = datetime.datetime.now(datetime.UTC), Clock(request.progress)
    label = provenance.label(request.builder_id, request.invocation_id, request.release)
    sbom.require_library()
    profile = asked_profile(request)
    place = request.place
    prepare_output(place, folder=True, force=request.force)
    cache = BuildCache() if request.cache and os.environ.get("AOTC_CACHE") != "off" else None
    given = nullcontext(request.workers) if request.workers is not None else None
    with (
        translated_errors(str(place)),
        work_folder(place) as work,
        given or Workers(profile.limits, BACKGROUND_IMPORTS) as workers,
    ):
        # While the workers' process starts, and while the first job runs.
        signer = load_signer(request.key)
        host = probe()
        workers.submit(_import_ahead)
        target = target_of(profile, host)
        options = BuildOptions(
            # A path would differ from folder to folder.
            profile=replace(profile, target=target.name),
            target=target,
            host=host,
            work=work / "build",
            workers=workers,
            clock=clock,
            cache=cache,
            fixtures=Path(request.fixtures) if request.fixtures is not None else None,
            embed_fixtures=request.embed_fixtures,
        )
        options.work.mkdir()
        require_providers(asked_specs(request, profile), options)
        source = model_digest(request.model) if cache is not None else None
        tuned = _tuned(request, options)
        options = tuned.options
        slot = place_of(source, request.name, options)
        taken = take(slot, work / NEW) if slot is not None else None
        artifact, evidence = taken or _made(request, tuned.model, work / NEW, options)
        if tuned.table:
            measured_on = tuned.measured_on or evidence.model
            evidence = replace(evidence, tuning=tuned.table, tuned_on=measured_on)
        with clock.stage("sign"):
            materials = provenance.gather(
                request,
                label=label,
                started=began,
                options={"embed_fixtures": request.embed_fixtures, "tune": request.tune},
                host=host,
                source_sha256=source_digest(),
                cached=taken is not None,
            )
            seal(artifact.folder, artifact.digests, evidence, materials, signer)
        with clock.stage("check"):
            rehearse(_staged(artifact, signer, options), workers, work / "check")
        # A file that was changed meanwhile may have been read before or after.
        if slot is not None and taken is None and model_digest(request.model) == source:
            with clock.stage("cache"):
                keep(slot, artifact, evidence)
        try:
            put_in_place(artifact.folder, place, force=request.force)
        except OSError as error:
            raise cannot_write(error, "cannot write the output", str(place)) from None
    signed = SignedArtifact(
        artifact=artifact, path=place, key_id=signer.key_id, development_key=signer.development
    )
    noticed = (
        *artifact.findings,
        *signer.findings,
        *tuned_on_another(evidence),
        *slowed_down(evidence),
        *(cache.findings() if cache is not None else ()),
    )
    return _report(signed, evidence, noticed, tuned.table, clock, cached=taken is not None)


def _import_ahead() -> None:
    """What signing needs, while jobs run; what fails here fails there again."""
    sbom.import_library()
    source_digest()


def _report(
    signed: SignedArtifact,
    evidence: Evidence,
    findings: tuple[Finding, ...],
    tuning: tuple[TuningCandidate, ...],
    clock: Clock,
    *,
    cached: bool,
) -> BuildReport:
    return BuildReport(
        artifact=str(signed.path),
        artifact_id=signed.artifact.artifact_id,
        payload_bytes=signed.artifact.payload_bytes,
        key_id=signed.key_id,
        development_key=signed.development_key,
        variants=evidence.variants,
        findings=findings,
        tuning=tuning,
        cached=cached,
        stages=clock.seconds,
        seconds=clock.passed(),
    )


def _staged(artifact: Artifact, signer: Signer, options: BuildOptions) -> Staged:
    """What is to be checked before it is published.

    A payload from the cache was loaded here when it was kept, and has the digests it had then: it
    is judged again, as it is signed anew, and not loaded.
    """
    ran: dict[str, list[str]] = {}
    for each in artifact.proven:
        if each.parity.status == "passed":
            ran.setdefault(each.plan.spec, []).append(each.plan.name)
    # The profile may narrow the GPUs that this host's variants are for.
    host = replace(options.target, compute_capabilities=options.host.compute_capabilities)
    return Staged(
        folder=artifact.folder,
        signer=signer,
        target=None if host == options.host else options.target,
        ran=ran,
        libraries={each.provider: each.library for each in options.profile.plugins.values()},
        bytes=artifact.payload_bytes,
    )


@record
class _Tuned:
    """Options with the variants that measurements chose; the model, where they were made here.

    `measured_on` is the sha256 of the model that they were made with, where that is another build.
    """

    options: BuildOptions
    model: AnalyzedModel | None = None
    table: tuple[TuningCandidate, ...] = ()
    measured_on: str = ""


def _tuned(request: BuildRequest, options: BuildOptions) -> _Tuned:
    """Choose among the profile's candidates, where that was asked for.

    Raises AOTC-P004 and P007 where a provider is missing that was chosen.
    """
    profile = options.profile
    judged = replace(options, judged=stated_orders(profile))
    model, measured_on = None, ""
    if request.tune:
        model = _analyzed(_imported(request, judged), judged)
        table = try_all(model, judged, run_stages)
    elif request.tuned_from is not None:
        measured, measured_on = tuning_of(Path(request.tuned_from))
        table = choose(measured)
    else:
        return _Tuned(options=options)
    options = replace(judged, profile=resolved(profile, table))
    require_providers(options.profile.variants, options)
    return _Tuned(options=options, model=model, table=table, measured_on=measured_on)


def _imported(request: BuildRequest, options: BuildOptions) -> SourceModel:
    """The model as it was given."""
    with options.clock.stage("import"):
        return import_model(request.model, options)


def _analyzed(
    source: SourceModel, options: BuildOptions, ranges: Mapping[str, DimRange] | None = None
) -> AnalyzedModel:
    """The model as all variants start from it.

    `ranges` are what the profile states of its dims, where that is known already.
    """
    with options.clock.stage("analyze", f"{source.capture.nodes_total} nodes"):
        if ranges is None:
            ranges = stated_ranges(source, options)
        return analyze(source, ranges, options)


def _made(
    request: BuildRequest, model: AnalyzedModel | None, folder: Path, options: BuildOptions
) -> tuple[Artifact, Evidence]:
    """The whole line, from the import to the payload in `folder`.

    `model` is given where it was imported and analyzed before.
    """
    clock = options.clock
    source = _imported(request, options) if model is None else model.source
    ranges = stated_ranges(source, options) if model is None else model.ranges
    plans, skipped = wanted_variants(ranges, options)
    ahead = optimize_ahead(source, plans, options)
    model = model or _analyzed(source, options, ranges)
    findings = [*source.capture.findings, *model.findings]
    try:
        settled = run_stages(model, plans, options, ahead)
        dropped = drop_failed(settled.attempts, settled.variants, options)
    except AotcError as error:
        if not fails_empty(model, [error]):
            raise
        options = options.apart("not-empty")
        with clock.stage("analyze", "without size 0"):
            model = analyze(source, ranges, options, empties=False)
        findings = [*source.capture.findings, *model.findings, not_empty(error)]
        settled = run_stages(model, plans, options)
        dropped = drop_failed(settled.attempts, settled.variants, options)
    made = settled.variants
    proven = [instead_of(item, settled.attempts, options) for item in made.proven]
    findings += [*skipped, *made.findings, *(finding_of(each) for each in dropped)]
    with clock.stage("package"):
        artifact = package(proven, dropped, findings, made.weights, folder, options)
    evidence = Evidence(
        built_at=instant(datetime.datetime.now(datetime.UTC)),
        stages=clock.seconds,
        variants=tuple(item.evidence for item in proven),
        model=source.capture.sha256,
        host={**provenance.describe(options.host), "cores": str(os.cpu_count() or 0)},
    )
    return artifact, evidence


def run_stages(
    model: AnalyzedModel,
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    ahead: Ahead = _NOTHING,
) -> Settled:
    """All stages from the optimizer to the proof, for a build and for candidates that are tuned.

    A variant that fails is run in other forms until one passes or nothing is left to try.  `ahead`
    are results of the optimizer that were begun earlier, by variant.
    """
    return settle(plans, options, ahead, partial(_run_once, model))


def _run_once(
    model: AnalyzedModel, attempts: Sequence[Attempt], options: BuildOptions, ahead: Ahead
) -> ProvenVariants:
    """From the analyzed model to proven variants, each in the form that is tried now."""
    clock = options.clock
    findings: list[Finding] = [each for attempt in attempts for each in attempt.findings]
    with clock.stage("optimize", ", ".join(attempt.plan.name for attempt in attempts)):
        specialized = [specialize(model, attempt.plan, options) for attempt in attempts]
        optimized, noticed = optimize(specialized, options, ahead)
    findings += noticed
    with clock.stage("partition"):
        claimed = claim(optimized, {each.plan.name: each.wrong for each in attempts}, options)
        findings += [finding for item in claimed for finding in item.findings]
        partitioned = partition(claimed, options)
    with clock.stage("lower"):
        lowered, dropped = lower(partitioned, options)
    findings += [finding for item in lowered for finding in item.findings]
    proven: list[ProvenModel] = []
    failed: list[tuple[LoweredModel, AotcError]] = []
    # The weights are final: their digests are taken while the variants are proven.
    with ThreadPoolExecutor(1) as pool:
        weights = pool.submit(digest_weights, (lowered[0] if lowered else claimed[0]).weights)
        for item in lowered:
            try:
                with clock.stage("prove", item.plan.name):
                    proven.append(prove(item, options))
            except AotcError as error:
                if item.plan.needed:
                    failed.append((item, error))
                else:
                    findings.append(left_out(item.plan, f"{error.code} {error.what}"))
        return ProvenVariants(
            proven=tuple(proven),
            failed=tuple(failed),
            left_out=dropped,
            findings=tuple(findings),
            weights=weights.result(),
        )
