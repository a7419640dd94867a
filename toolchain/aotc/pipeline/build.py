"""The build pipeline: the only place where the order of stages is written."""

from __future__ import annotations

import copy
import datetime
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from aotc.base.errors import EXIT_NO, AotcError
from aotc.base.files.failures import cannot_write, translated_errors
from aotc.base.files.replacing import NEW, put_in_place
from aotc.base.files.work_folders import prepare_output, work_folder
from aotc.base.records import replace
from aotc.host.probe import probe
from aotc.pipeline.analyze import analyze
from aotc.pipeline.cache import BuildCache
from aotc.pipeline.gates import noise_findings, refused_gate, repeat_findings
from aotc.pipeline.import_model import import_model
from aotc.pipeline.integer_products import companion_left_out
from aotc.pipeline.integers import may_be_static, observes_half, require_quantization
from aotc.pipeline.lower import dropped_finding, lower
from aotc.pipeline.optimize import optimize, optimize_ahead
from aotc.pipeline.options import BuildOptions, Clock
from aotc.pipeline.package import digest_weights, package, size_breach, weight_bytes
from aotc.pipeline.partition import claim, partition
from aotc.pipeline.plan import require_measurable, require_providers, stated_ranges, wanted_variants
from aotc.pipeline.prove import judged_variant
from aotc.pipeline.request import (
    BuildRequest,
    called_with,
    refuse_artifact,
    requested_profile,
    target_of,
)
from aotc.pipeline.retry import (
    Ahead,
    Attempt,
    Settled,
    drop_failed,
    empty_sizes_finding,
    fails_at_empty_sizes,
    settle,
    slowdown_findings,
    with_tried_forms,
)
from aotc.pipeline.reuse import data_digests, inputs_digests, source_digest, store_build
from aotc.pipeline.specialize import specialize
from aotc.pipeline.timing import form_findings, time_both_forms
from aotc.pipeline.tune import precision_findings, tuned_or_cached, tuning_findings
from aotc.pipeline.tune_choices import requested_specs
from aotc.pipeline.types import (
    AnalyzedModel,
    Artifact,
    LoweredModel,
    ProvenModel,
    ProvenVariants,
    SignedArtifact,
    SourceModel,
    VariantPlan,
)
from aotc.runtime.rehearsal import Staged, rehearse
from aotc.session.worker_pool import Workers
from aotc.spec.attestations import format_instant
from aotc.spec.evidence import Evidence, TuningCandidate
from aotc.spec.payload import Finding
from aotc.spec.profile import Profile
from aotc.spec.reports import BuildReport
from aotc.spec.run_report import Journal
from aotc.spec.shapes import DimRange
from aotc.spec.trust_anchors import Anchor
from aotc.spec.trust_policy import Sealer
from aotc.trust import provenance, sbom
from aotc.trust.sealing import seal
from aotc.trust.signers import findings_of, load_signer, own_anchors

# Modules that the jobs of every build import, in order; the first job imports its own.
PRELOADED_MODULES: Final = (
    "aotc.sizes.analysis",
    "aotc.pipeline.optimize",
    "aotc.pipeline.prove",
    "aotc.runtime.rehearsal_jobs",
)
_NONE_AHEAD: Final[Ahead] = {}
_LAST: Final = sys.maxsize


@called_with(BuildRequest)
def build(request: BuildRequest) -> BuildReport:
    """Build a signed artifact from an ONNX model, and prove it against the model.

    `model` is a path, or the bytes of a self-contained model.  `profile` and `target` are built-in
    names or paths of files; `dims` bounds or fixes dims by name (`8`, `"1..8"`), beside the
    profile's; `precision` replaces the profile's.  `output` defaults to `NAME.aotc` in the working
    directory; with `force` an existing artifact is replaced.  `fixtures` is a file or folder of the
    user's inputs, included in the artifact with `embed_fixtures`; `calibration` is data to quantize
    with.  With `cache` an equal earlier build is taken from the user's cache, and a new one is
    kept.  `tune` measures the profile's candidates and chooses the fastest; `tuned_from`, an
    artifact or its evidence, repeats an earlier choice.  Without `key` the user's development key
    signs; a `KeylessSigner` is an identity.  `builder_id` (a URI; default: $AOTC_BUILDER_ID),
    `invocation_id` and `release`, a version or "tag" for the CI's, are in the provenance, and the
    model's `licence` in the bill of materials.  `workers` run the jobs and stay running; else the
    build starts its own.  `journal` receives what is judged and measured, also of a build that
    fails.  The report has sizes in bytes, times in seconds, and the errors of each output by the
    sizes of dims at which it was compared.  Raises `AotcError`, of exit status 3 if the input must
    be fixed, 1 if a gate failed; then nothing new is at `output`.
    """
    refuse_artifact(request.model)
    started_at, clock = datetime.datetime.now(datetime.UTC), Clock(request.progress)
    label = provenance.build_label(request.builder_id, request.invocation_id, request.release)
    sbom.require_library()
    profile, places = requested_profile(request)
    journal = request.journal if request.journal is not None else Journal()
    journal.stages = clock.seconds
    output = request.output_path
    prepare_output(output, folder=True, force=request.force)
    cache = BuildCache() if request.cache and os.environ.get("AOTC_CACHE") != "off" else None
    given_workers = nullcontext(request.workers) if request.workers is not None else None
    with (
        translated_errors(str(output)),
        work_folder(output) as work,
        given_workers or Workers(profile.limits, PRELOADED_MODULES) as workers,
    ):
        # Done while the worker process starts, and while the first job runs.
        signer = request.key if isinstance(request.key, Sealer) else load_signer(request.key)
        trusted = own_anchors(signer, "the key of this build")
        host = probe()
        workers.submit(_import_ahead)
        target = target_of(profile, host, places)
        journal.target = target.name
        options = BuildOptions(
            # A path would differ between folders.
            profile=replace(profile, target=target.name),
            target=target,
            host=host,
            work=work / "build",
            workers=workers,
            clock=clock,
            places=places,
            journal=journal,
            cache=cache,
            fixtures=Path(request.fixtures) if request.fixtures is not None else None,
            embed_fixtures=request.embed_fixtures,
            calibration=request.calibration_of(profile),
            tries_static=may_be_static(profile, tune=request.is_tuned),
            tries_half=observes_half(profile, tune=request.is_tuned),
        )
        options.work.mkdir()
        requested = requested_specs(request, profile)
        require_providers(requested, options)
        if request.tune:
            require_measurable(requested, options)
        require_quantization(options, tune=request.tune)
        given = inputs_digests(request.model, options) if cache is not None else None
        source = given["model"] if given is not None else None
        tuned = tuned_or_cached(
            request, source, options, work / NEW, partial(_prepared, request), run_stages
        )
        options, slot, cached = tuned.options, tuned.slot, tuned.cached
        artifact, evidence = cached or _built(request, tuned.model, work / NEW, options)
        if tuned.table:
            measured_on = tuned.measured_on or evidence.model_sha256
            evidence = replace(evidence, tuning=tuned.table, tuned_model_sha256=measured_on)
        with clock.stage("sign"):
            materials = provenance.gather_materials(
                request,
                label=label,
                started=started_at,
                options=request.stated_options(),
                host=host,
                source_sha256=source_digest(),
                cached=cached is not None,
                data=data_digests(options),
            )
            by = seal(artifact.folder, artifact.digests, evidence, materials, signer)
        with clock.stage("check"):
            rehearse(_staged_artifact(artifact, trusted, options), workers, work / "check")
        # If a file was changed meanwhile, it is unknown which content was built.
        new = slot if cached is None else None
        if new is not None and inputs_digests(request.model, options) == given:
            with clock.stage("cache"):
                store_build(new, artifact, evidence, journal)
        try:
            put_in_place(artifact.folder, output, force=request.force)
        except OSError as error:
            raise cannot_write(error, "cannot write the output", str(output)) from None
    signed = SignedArtifact(artifact=artifact, path=output, signed_by=by)
    findings = (
        *artifact.findings,
        *findings_of(signer),
        *measured_findings(evidence, profile),
        *(cache.findings() if cache is not None else ()),
    )
    journal.noticed(findings)
    return build_report(signed, evidence, findings, tuned.table, clock, cached=cached is not None)


def _import_ahead() -> None:
    """Import what signing needs while jobs run; an error here is raised again when signing."""
    sbom.import_library()
    source_digest()


def _staged_artifact(
    artifact: Artifact, signers: tuple[Anchor, ...], options: BuildOptions
) -> Staged:
    """What is checked before it is published.

    A payload from the cache was loaded here when it was stored: it is verified, but not loaded.
    """
    # The profile may restrict the GPUs that this host's variants are for.
    host = replace(options.target, compute_capabilities=options.host.compute_capabilities)
    return Staged(
        folder=artifact.folder,
        signers=signers,
        target=None if host == options.host else options.target,
        ran=artifact.proven_here,
        libraries={plugin.provider: plugin.library for plugin in options.profile.plugins.values()},
        bytes=artifact.payload_bytes,
    )


def _imported(request: BuildRequest, options: BuildOptions) -> SourceModel:
    with options.clock.stage("import"):
        source = import_model(request.model, options)
    options.journal.model_sha256 = source.capture.sha256
    return source


def _prepared(request: BuildRequest, options: BuildOptions) -> AnalyzedModel:
    """The model, imported and analyzed for trials."""
    return _analyzed(_imported(request, options), options)


def _analyzed(
    source: SourceModel, options: BuildOptions, ranges: Mapping[str, DimRange] | None = None
) -> AnalyzedModel:
    """The analyzed model, which all variants start from.

    `ranges` are what the profile states of its dims, if that is known already.
    """
    with options.clock.stage("analyze", f"{source.capture.nodes_total} nodes"):
        if ranges is None:
            ranges = stated_ranges(source, options)
        return analyze(source, ranges, options)


def _built(
    request: BuildRequest, model: AnalyzedModel | None, folder: Path, options: BuildOptions
) -> tuple[Artifact, Evidence]:
    """All stages from the import to the payload in `folder`.

    `model` is given if it was imported and analyzed before.
    """
    clock = options.clock
    source = _imported(request, options) if model is None else model.source
    ranges = stated_ranges(source, options) if model is None else model.ranges
    plans, skipped = wanted_variants(ranges, options)
    ahead = optimize_ahead(source, plans, options)
    model = model or _analyzed(source, options, ranges)
    findings = [*source.capture.findings, *model.findings]
    options.journal.noticed(findings)
    settled = run_stages(model, plans, options, ahead)
    dropped, refusals = drop_failed(settled.attempts, settled.variants, options)
    empty = [error for error in refusals if fails_at_empty_sizes(model, [error])]
    if empty:
        options = options.with_subfolder("not-empty")
        with clock.stage("analyze", "without size 0"):
            model = analyze(source, ranges, options, empties=False)
        options.journal.withdrawn(findings)
        findings = [*source.capture.findings, *model.findings, empty_sizes_finding(empty[0])]
        options.journal.noticed(findings)
        settled = run_stages(model, plans, options)
        dropped, refusals = drop_failed(settled.attempts, settled.variants, options)
    variants = settled.variants
    for left in dropped:
        options.journal.left_out(f"variant {left.name}")
    if refusals:
        raise _refusal(refusals, variants, folder, options)
    tried = [with_tried_forms(item, settled.attempts, options) for item in variants.proven]
    proven = time_both_forms(tried, options)
    findings += [*skipped, *variants.findings, *(dropped_finding(variant) for variant in dropped)]
    with clock.stage("package"):
        artifact = package(proven, dropped, findings, variants.weights, folder, options)
    evidence = Evidence(
        built_at=format_instant(datetime.datetime.now(datetime.UTC)),
        stages=clock.seconds,
        variants=tuple(item.evidence for item in proven),
        model_sha256=source.capture.sha256,
        noise=model.noise,
        host={**provenance.describe_host(options.host), "cores": str(os.cpu_count() or 0)},
    )
    return artifact, evidence


def _refusal(
    refusals: Sequence[AotcError], variants: ProvenVariants, folder: Path, options: BuildOptions
) -> AotcError:
    """What a build ends with whose variants breach gates: all of them, its size included."""
    options.journal.noticed(variants.findings)
    whole = [*variants.proven, *variants.measured]
    return all_breaches(
        [*refusals, *filter(None, [size_breach(whole, variants.weights, folder, options)])]
    )


def run_stages(
    model: AnalyzedModel,
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    ahead: Ahead = _NONE_AHEAD,
    *,
    others: bool = True,
) -> Settled:
    """All stages from the optimizer to the proof, for a build and for tuning candidates.

    With `others`, a variant that fails is run in other forms until one passes or no form is left.
    `ahead` are results of the optimizer that were started earlier, by variant.
    """
    return settle(plans, options, ahead, partial(_run_once, model), others=others)


def _run_once(
    model: AnalyzedModel, attempts: Sequence[Attempt], options: BuildOptions, ahead: Ahead
) -> ProvenVariants:
    """All stages from the optimizer to the proof, each variant in its current form."""
    clock = options.clock
    findings: list[Finding] = [finding for attempt in attempts for finding in attempt.findings]
    with clock.stage("optimize", ", ".join(attempt.plan.name for attempt in attempts)):
        specialized = [specialize(model, attempt.plan, options) for attempt in attempts]
        optimized, noticed = optimize(specialized, options, ahead)
    findings += noticed
    with clock.stage("partition"):
        claimed = claim(
            optimized, {attempt.plan.name: attempt.wrong for attempt in attempts}, options
        )
        findings += [finding for item in claimed for finding in item.findings]
        partitioned = partition(claimed, options)
    with clock.stage("lower"):
        lowered, dropped, refused = lower(partitioned, options)
    options.journal.judged(refused_gate(plan.name, error) for plan, error in refused)
    findings += [finding for item in lowered for finding in item.findings]
    proven: list[ProvenModel] = []
    failed: list[tuple[LoweredModel, AotcError]] = []
    measured: list[ProvenModel] = []
    # The weights are final: they are hashed while the variants are proven.
    with ThreadPoolExecutor(1) as pool:
        folder = (lowered[0] if lowered else claimed[0]).weights
        tally = weight_bytes(folder)
        weights = pool.submit(digest_weights, folder, tally)
        for number, item in enumerate(lowered):
            with clock.stage("prove", item.plan.name):
                if len(lowered) > 1:
                    clock.reporter.count(number, len(lowered), "variants")
                judged = judged_variant(item, options)
            error = judged.breach
            if error is None:
                proven += filter(None, [judged.proven])
            elif item.plan.required:
                failed.append((item, error))
                measured += filter(None, [judged.proven])
            else:
                options.journal.left_out(f"variant {item.plan.name}")
                findings.append(companion_left_out(item.plan, f"{error.code} {error.what}"))
        if not weights.done():
            with clock.reporter.counting("hash", "weights", tally):
                weights.exception()
        return ProvenVariants(
            proven=tuple(proven),
            failed=tuple(failed),
            refused=refused,
            measured=tuple(measured),
            left_out=dropped,
            findings=tuple(findings),
            weights=weights.result(),
        )


# What a build's measurements say to its user: no payload has it, as it is not reproducible.


def measured_findings(evidence: Evidence, profile: Profile) -> tuple[Finding, ...]:
    """Tuning on another model, precisions and forms that were given up, both forms of integers,
    other bytes, and limits below the noise.
    """
    return (
        *tuning_findings(evidence),
        *precision_findings(evidence, profile),
        *slowdown_findings(evidence),
        *form_findings(evidence),
        *repeat_findings(evidence),
        *noise_findings(evidence.noise),
    )


# How a build ends: its report, or one refusal with every breach.


def build_report(
    signed: SignedArtifact,
    evidence: Evidence,
    findings: tuple[Finding, ...],
    tuning: tuple[TuningCandidate, ...],
    clock: Clock,
    *,
    cached: bool,
) -> BuildReport:
    """The report of a build whose artifact is at its final path."""
    return BuildReport(
        artifact=str(signed.path),
        artifact_id=signed.artifact.artifact_id,
        payload_bytes=signed.artifact.payload_bytes,
        key_id=signed.signed_by.key_id,
        identity=signed.signed_by.identity,
        development_key=signed.signed_by.development_key,
        variants=evidence.variants,
        findings=findings,
        tuning=tuning,
        cached=cached,
        stages=clock.seconds,
        seconds=clock.elapsed(),
    )


def all_breaches(errors: Iterable[AotcError]) -> AotcError:
    """The breaches of all `errors`, of which there is at least one: the first with all in `also`.

    Each is told once.  Those of gates come before what else kept a variant from being judged, so
    that the exit status is that of a failed gate; gates are in the order of the profile's lines.
    """
    found: dict[tuple[str, str, str, str], AotcError] = {}
    for error in errors:
        for each in error.every():
            found.setdefault((each.code, each.what, each.where, each.expected), each)
    ordered = sorted(
        found.values(),
        key=lambda each: (each.exit_status != EXIT_NO, each.place.line if each.place else _LAST),
    )
    first, *others = (copy.copy(each) for each in ordered)
    for each in others:
        each.also = ()
    first.also = tuple(others)
    return first
