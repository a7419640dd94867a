"""The build pipeline: the only place where the order of stages is written."""

from __future__ import annotations

import copy
import datetime
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from aotc.base.errors import EXIT_NO, AotcError
from aotc.base.files.failures import translated_errors
from aotc.base.files.folders import MANIFEST
from aotc.base.files.replacing import NEW
from aotc.base.files.work_folders import work_folder
from aotc.base.progress import watched
from aotc.base.records import record, replace
from aotc.base.text import is_utf8
from aotc.host.probe import probe
from aotc.pipeline.analyze import against_framework, analyze
from aotc.pipeline.attempts import (
    Attempt,
    Attempts,
    Form,
    Result,
    Steps,
    drop_failed,
    settle,
    slowdown_findings,
    with_tried_forms,
    without_empty_sizes,
)
from aotc.pipeline.auto import choose_precisions
from aotc.pipeline.cache import ARTIFACT, BuildCache
from aotc.pipeline.context import BuildContext, BuildState, Clock
from aotc.pipeline.custom_ops import stage_custom_ops
from aotc.pipeline.earlier import earlier_artifact, judge_answers, require_interface
from aotc.pipeline.gates import noise_findings, repeat_findings
from aotc.pipeline.import_model import import_model
from aotc.pipeline.integer_products import is_companion
from aotc.pipeline.integers import may_be_static, observes_half, require_quantization
from aotc.pipeline.lower import dropped_finding, lower
from aotc.pipeline.margins import narrow_findings
from aotc.pipeline.memory_budgets import judge_memory, with_planned_limits
from aotc.pipeline.observe import memory_findings, observe_all
from aotc.pipeline.optimize import fuse_ahead, optimize, optimize_ahead
from aotc.pipeline.output import Output
from aotc.pipeline.package import package, size_breach
from aotc.pipeline.partition import claim, partition
from aotc.pipeline.plan import require_measurable, require_providers, stated_ranges, wanted_variants
from aotc.pipeline.prove import prove_all, require_alike
from aotc.pipeline.request import (
    BuildRequest,
    called_with,
    in_files,
    refuse_artifact,
    requested_profile,
    target_of,
)
from aotc.pipeline.reuse import (
    CachedBuild,
    artifact_key_parts,
    cache_slot,
    cached_artifact,
    data_digests,
    inputs_digests,
    source_digest,
    store_build,
)
from aotc.pipeline.specialize import specialize
from aotc.pipeline.timing import (
    form_findings,
    judge_speedups,
    keep_findings,
    require_lower_precision,
    time_against_keep,
    time_both_forms,
    unsteady_findings,
)
from aotc.pipeline.tune import (
    Choice,
    choose_as_before,
    choose_by_trials,
    precision_findings,
    requested_specs,
    tuning_findings,
    wants_auto,
)
from aotc.pipeline.types import (
    AnalyzedModel,
    Artifact,
    LoweredModel,
    LoweredVariants,
    ProvenVariants,
    SignedArtifact,
    SourceModel,
    VariantPlan,
)
from aotc.runtime.rehearsal import Staged, rehearse
from aotc.session.worker_pool import Workers
from aotc.sources.capturing import SourceTrust, take
from aotc.sources.registry import importer_of
from aotc.spec.attestations import format_instant
from aotc.spec.codec import decode
from aotc.spec.evidence import Evidence
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest, unproven_findings
from aotc.spec.payload import Finding
from aotc.spec.profile import Profile
from aotc.spec.reports import BuildReport
from aotc.spec.run_report import Journal
from aotc.spec.shapes import DimRange
from aotc.spec.target import Target
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
    "aotc.session.observed_memory",
    "aotc.pipeline.memory_plan",
    "aotc.runtime.rehearsal_jobs",
    # What these import when they are called, and two of them the same.
    "numpy.random",
    "aotc.providers.cpu",
    "aotc.runtime.session_opening",
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.hazmat.primitives.serialization",
)
_LAST: Final = sys.maxsize


@called_with(BuildRequest)
def build(request: BuildRequest) -> BuildReport:
    """Build a signed artifact from a model, and prove it against the model.

    `model` is the path of an ONNX file or of a framework's source, such as `model.pt2`, or the
    bytes of a self-contained ONNX model; or it is a `torch.nn.Module`, which is exported with
    `example_inputs`, a tuple of tensors or a mapping of names to them, and `dynamic_shapes` as
    `torch.export.export` takes them, or an `ExportedProgram`.  What is captured from a framework
    is proven against the framework's own answers; `trust_source` allows code of the source to run,
    and `source_options` are its importer's.  `profile` and `target` are built-in
    names or paths of files; `dims` bounds or fixes dims by name (`8`, `"1..8"`), beside the
    profile's, and `values` states values of inputs by name (`"0.5..2.0"`, `"..time"`,
    `"8000,16000"`); `precision` and `random` replace the profile's, and `allow_unproven` allows
    variants that this host cannot prove.  `output` defaults to `NAME.aotc` in the working
    directory; one that ends in `.zip` is one file.  An artifact of the same model, signed by the
    same key and by no other, is replaced, and with `force` any artifact.  `fixtures` is a file or
    folder of the user's inputs, included in the artifact with `embed_fixtures`; `calibration` is
    data to quantize with.  `custom_ops` are libraries of operators beside the profile's, which the
    artifact ships.  With `cache` an equal earlier build is taken from the user's cache, and a new
    one is kept.  `tune` measures the profile's candidates and chooses the fastest; `tuned_from`, an
    artifact or its evidence, repeats an earlier choice.  `against` is an earlier artifact of the
    model, whose answers the new one must give.  Without `key` the user's development key
    signs; a `KeylessSigner` is an identity.  `builder_id` (a URI; default: $AOTC_BUILDER_ID),
    `invocation_id` and `release`, a version or "tag" for the CI's, are in the provenance, and the
    model's `licence` in the bill of materials.  `workers` run the jobs and stay running; else the
    build starts its own.  `journal` receives what is judged and measured, also of a build that
    fails.  The report has sizes in bytes, times in seconds, and the errors of each output by the
    sizes of dims at which it was compared.  Raises `AotcError`, of exit status 3 if the input must
    be fixed, 1 if a gate failed; then nothing new is at `output`.
    """
    with in_files(request) as given:
        return _build_files(given)


def _build_files(request: BuildRequest) -> BuildReport:
    refuse_artifact(request.source)
    started_at, clock = datetime.datetime.now(datetime.UTC), Clock(request.progress)
    label = provenance.build_label(request.builder_id, request.invocation_id, request.release)
    sbom.require_library()
    profile, places = requested_profile(request)
    journal = request.journal if request.journal is not None else Journal()
    journal.stages = clock.seconds
    written = Output(request.output_path, request.source, force=request.force)
    output = written.place
    cache = BuildCache() if request.cache and os.environ.get("AOTC_CACHE") != "off" else None
    given_workers = nullcontext(request.workers) if request.workers is not None else None
    with (
        watched(request.progress),
        translated_errors(str(output)),
        work_folder(output) as work,
        earlier_artifact(request.against) as earlier,
        given_workers or Workers(profile.limits, PRELOADED_MODULES) as workers,
    ):
        if not is_utf8(str(work)):
            raise AotcError(
                "AOTC-I027",
                "the path of the artifact is not UTF-8, and ONNX Runtime writes no such files",
                where=str(output),
            )
        # Done while the worker process starts, and while the first job runs.
        signer = request.key if isinstance(request.key, Sealer) else load_signer(request.key)
        trusted = own_anchors(signer, "the key of this build")
        written.require_signer(trusted)
        host = probe()
        workers.submit(_import_ahead)
        target = target_of(profile, host, places)
        journal.target = target.name
        context = replace(_context(request, profile, target, work / "custom_ops"), places=places)
        state = BuildState(
            context=context,
            work=work / "build",
            workers=workers.registering(library.file for library in context.custom_ops),
            clock=clock,
            cache=cache,
            journal=journal,
            earlier=earlier,
        )
        state.work.mkdir()
        _require_possible(request, context)
        made = _made(request, work / NEW, state)
        artifact, evidence = made.artifact, made.evidence
        with clock.stage("sign"):
            materials = provenance.gather_materials(
                request,
                label=label,
                started=started_at,
                options=request.stated_options(),
                host=host,
                target=target,
                source_sha256=source_digest(),
                cached=made.cached,
                data=data_digests(context),
            )
            by = seal(artifact.folder, artifact.digests, evidence, materials, signer)
        staged = _staged_artifact(artifact, trusted, context)
        with clock.stage("check"):
            rehearse(staged, workers, work / "check")
        # If a file was changed meanwhile, it is unknown which content was built.
        new = made.slot if not made.cached else None
        if new is not None and inputs_digests(request, context) == made.given:
            with clock.stage("cache"):
                store_build(new, artifact, evidence, journal)
        with clock.stage("answers") if earlier is not None else nullcontext():
            judge_answers(earlier, staged, workers, work / "answers", journal)
        manifest = decode(Manifest, strict_json((artifact.folder / MANIFEST).read_bytes()))
        unproven = unproven_findings(manifest, output.name)
        written.deliver(artifact.folder, manifest, work, request.progress)
    signed = SignedArtifact(artifact=artifact, path=output, signed_by=by)
    findings = (
        *artifact.findings,
        *findings_of(signer),
        *unproven,
        *measured_findings(evidence, profile),
        *(cache.findings() if cache is not None else ()),
    )
    journal.noticed(findings)
    return build_report(
        signed, evidence, findings, clock, cached=made.cached, against=str(request.against or "")
    )


def _context(request: BuildRequest, profile: Profile, target: Target, folder: Path) -> BuildContext:
    """What is asked for, on this machine; libraries of operators are copied to `folder`."""
    host = probe()
    return BuildContext(
        # A path would differ between folders.
        profile=replace(profile, target=target.name),
        target=target,
        host=host,
        fixtures=Path(request.fixtures) if request.fixtures is not None else None,
        embed_fixtures=request.embed_fixtures,
        calibration=request.calibration_of(profile),
        custom_ops=stage_custom_ops(profile, target, host, folder),
        tries_static=may_be_static(profile, tune=request.is_tuned),
        tries_half=observes_half(profile, tune=request.is_tuned),
    )


def foreseen_keys(
    request: BuildRequest, models: Sequence[tuple[str, str]], folder: Path
) -> tuple[str, ...]:
    """The keys under which the build cache keeps what `request` builds on this machine.

    One for each of `models`: the name that a build gives it, and what `reuse.model_digest` says of
    it; that of the request is not read.  `folder` is empty.  A key is empty where nothing is known
    before the build.  Raises what a build refuses before it reads the model, and AOTC-N002 where
    nothing can be proven on this machine, whatever the model.
    """
    profile, places = requested_profile(request)
    target = target_of(profile, probe(), places)
    context = _context(request, profile, target, folder / "custom_ops")
    _require_possible(request, context)
    require_alike(context)
    # Only the model and its name differ from key to key.
    parts = artifact_key_parts("", "", context)
    if parts is None:
        return tuple("" for _ in models)
    cache = BuildCache()
    return tuple(
        cache.key(ARTIFACT, {**parts, "model": digest, "name": name}) if digest else ""
        for name, digest in models
    )


def _require_possible(request: BuildRequest, context: BuildContext) -> None:
    """Raise what is known of the request before the model is read: P004, P007, O020 and others."""
    requested = requested_specs(request, context.profile)
    require_providers(requested, context)
    if request.tune:
        require_measurable(requested, context)
    require_quantization(context, tune=request.tune)
    if request.tuned_from is None:
        require_lower_precision(context, tune=request.tune)


def _import_ahead() -> None:
    """Import what signing needs while jobs run; an error here is raised again when signing."""
    sbom.import_library()
    source_digest()


def _staged_artifact(
    artifact: Artifact, signers: tuple[Anchor, ...], context: BuildContext
) -> Staged:
    """What is checked before it is published.

    A payload from the cache was loaded here when it was stored: it is verified, but not loaded.
    """
    # The profile may restrict the GPUs that this host's variants are for.
    host = replace(context.target, compute_capabilities=context.host.compute_capabilities)
    return Staged(
        folder=artifact.folder,
        signers=signers,
        target=None if host == context.host else context.target,
        ran=artifact.proven_here,
        libraries={plugin.provider: plugin.library for plugin in context.profile.plugins.values()},
        custom_ops=tuple(str(library.file) for library in context.custom_ops),
        bytes=artifact.payload_bytes,
    )


@record
class _Made:
    """A payload with its evidence.

    `slot` is where the cache keeps it, or will keep it; `given` are the digests of what was read of
    the user's.
    """

    artifact: Artifact
    evidence: Evidence
    slot: CachedBuild | None
    given: Mapping[str, str] | None
    cached: bool


def _made(request: BuildRequest, folder: Path, state: BuildState) -> _Made:
    """The payload in `folder`: from the cache if an equal build is there, else by all stages.

    What `--tune` chooses is part of what makes builds equal, and is measured always; what
    `precision: auto` alone chooses is part of what is kept.
    """
    context = state.context
    given = inputs_digests(request, context) if state.cache is not None else None
    choice, model = Choice(context=context), None
    if request.tuned_from is not None:
        choice = choose_as_before(Path(request.tuned_from), context)
    elif request.tune:
        model = _analyzed(_imported(request, state), state)
        choice = through_stages(model, choose_by_trials(model, state))
    state = state.asking(choice.context)
    slot = cache_slot(given["model"] if given else None, request.name, state)
    cached = cached_artifact(slot, folder, state) if slot is not None else None
    if cached is not None:
        artifact, evidence = cached
    else:
        if not request.is_tuned and wants_auto(context.profile):
            model = _analyzed(_imported(request, state), state)
            lowers = partial(_only_lowered, model)
            choice = through_stages(model, choose_precisions(model, state, lowers))
        artifact, evidence = _built(request, model, folder, choice, state)
    if choice.table:
        measured_on = choice.measured_on or evidence.model_sha256
        evidence = replace(evidence, tuning=choice.table, tuned_model_sha256=measured_on)
    return _Made(
        artifact=artifact,
        evidence=evidence,
        slot=slot,
        given=given,
        cached=cached is not None,
    )


def _imported(request: BuildRequest, state: BuildState) -> SourceModel:
    taken = None
    importer = importer_of(request.source)
    if importer is not None:
        allowed = SourceTrust(trusted=request.trust_source, options=request.source_options)
        with state.clock.stage("capture", importer.name):
            folder = state.work / "capture"
            taken = take(importer, str(request.source), folder, state.workers, allowed)
    with state.clock.stage("import"):
        source = import_model(taken.model if taken is not None else request.source, state, taken)
    state.journal.model_sha256 = source.capture.sha256
    require_interface(state.earlier, source.inputs, source.outputs)
    return source


def _analyzed(
    source: SourceModel,
    state: BuildState,
    ranges: Mapping[str, DimRange] | None = None,
) -> AnalyzedModel:
    """The analyzed model, which all variants start from.

    `ranges` are what the profile states of its dims, if that is known already.
    """
    with state.clock.stage("analyze", f"{source.capture.nodes_total} nodes"):
        if ranges is None:
            ranges = stated_ranges(source, state.context)
        analyzed = analyze(source, ranges, state)
    if source.taken is None:
        return analyzed
    with state.clock.stage("framework", source.taken.importer):
        return against_framework(analyzed, state)


def _built(
    request: BuildRequest,
    model: AnalyzedModel | None,
    folder: Path,
    choice: Choice,
    state: BuildState,
) -> tuple[Artifact, Evidence]:
    """All stages from the import to the payload in `folder`, for the context of `choice`.

    `model` is given if it was imported and analyzed before.
    """
    state = state.asking(choice.context)
    context = state.context
    clock, journal = state.clock, state.journal
    source = model.source if model is not None else _imported(request, state)
    ranges = model.ranges if model is not None else stated_ranges(source, context)
    plans, skipped = wanted_variants(ranges, context)
    lowered = choice.lowered if _is_of(choice.lowered, plans) else None
    ahead = optimize_ahead(source, plans, state) if lowered is None else {}
    if model is None:
        fusing = fuse_ahead(source, ranges, plans, state)
        model = _analyzed(source, state, ranges)
        # What failed is told when it is asked for.
        wait(fusing)
    findings = [*source.capture.findings, *model.findings]
    journal.noticed(findings)
    settled = through_stages(model, settle(plans, state, ahead, lowered=lowered))
    dropped, refusals = drop_failed(settled.forms, settled.variants, state)
    left_out: list[Finding] = []
    for everywhere in (False, False, False, True):
        fewer = without_empty_sizes(model, refusals, everywhere=everywhere)
        if fewer is None:
            break
        journal.withdrawn(left_out)
        model, left_out = fewer[0], [fewer[1]]
        state = state.below("fewer-empty")
        journal.noticed(left_out)
        settled = through_stages(model, settle(plans, state))
        dropped, refusals = drop_failed(settled.forms, settled.variants, state)
    variants = settled.variants
    for left in dropped:
        journal.left_out(f"variant {left.name}")
    if refusals:
        raise _refusal(refusals, variants, folder, state)
    tried = [with_tried_forms(item, settled.forms, state) for item in variants.proven]
    both = time_both_forms(tried, state)
    trials = () if choice.measured_on else choice.table
    proven = time_against_keep(both, trials, partial(_in_keep, model), state)
    if breaches := judge_speedups(proven, choice.table, state):
        raise all_breaches(breaches)
    proven = observe_all(proven, state)
    proven, unplanned = with_planned_limits(proven, state)
    if breaches := [*unplanned, *judge_memory(proven, state)]:
        raise all_breaches(breaches)
    findings += [
        *left_out,
        *skipped,
        *variants.findings,
        *(dropped_finding(variant) for variant in dropped),
    ]
    with clock.stage("package"):
        artifact = package(proven, dropped, findings, variants.weights, folder, state)
    source.require_unchanged()
    evidence = Evidence(
        built_at=format_instant(datetime.datetime.now(datetime.UTC)),
        stages=clock.seconds,
        variants=tuple(item.evidence for item in proven),
        model_sha256=source.capture.sha256,
        noise=model.noise,
        exported=model.exported,
        host={**provenance.describe_host(context.host), "cores": str(os.cpu_count() or 0)},
    )
    return artifact, evidence


def _is_of(lowered: LoweredVariants | None, plans: Sequence[VariantPlan]) -> bool:
    """Whether trials lowered just these variants, beside faster companions of them."""
    if lowered is None or lowered.left_out:
        return False
    made = [item.plan for item in lowered.lowered]
    return all(plan in made for plan in plans) and all(
        plan in plans or any(is_companion(plan, of) for of in plans) for plan in made
    )


def through_stages(model: AnalyzedModel, steps: Steps[Result]) -> Result:
    """All stages from the optimizer to the proof, for one attempt of `steps` after the other.

    What `steps` learns from an attempt decides on the next; a refusal is an answer as well.
    """
    attempts = Attempts(steps)
    for attempt in attempts:
        with attempts.refusals_answer():
            if attempt.lowered is not None:
                lowered, findings = attempt.lowered, attempt.findings
            else:
                lowered, findings = _lowered(model, attempt)
            attempts.answer(prove_all(lowered, findings, attempt.state))
    return attempts.result


def _lowered(model: AnalyzedModel, attempt: Attempt) -> tuple[LoweredVariants, list[Finding]]:
    """The stages from the optimizer to what can be run, and their findings."""
    state, stage = attempt.state, attempt.state.clock.stage
    context = state.context
    with stage("optimize", attempt.names):
        specialized = [specialize(model, form.plan, context) for form in attempt.forms]
        optimized, noticed = optimize(specialized, state, attempt.ahead)
    with stage("partition"):
        claimed = claim(optimized, attempt.wrong, state)
        partitioned = partition(claimed, context)
    with stage("lower"):
        lowered = lower(partitioned, state)
    return lowered, [*attempt.findings, *noticed]


def _only_lowered(
    model: AnalyzedModel, plans: Sequence[VariantPlan], state: BuildState
) -> LoweredVariants:
    """Variants that are not proven, with all findings."""
    forms = tuple(Form(plan=plan) for plan in plans)
    made, findings = _lowered(model, Attempt(forms=forms, state=state))
    return replace(made, findings=(*findings, *made.findings))


def _in_keep(model: AnalyzedModel, plan: VariantPlan, state: BuildState) -> LoweredModel:
    """A variant that is only timed; raises what refuses it."""
    made = _only_lowered(model, [plan], state)
    for _, refusal in made.refused:
        raise refusal
    return made.lowered[0]


def _refusal(
    refusals: Sequence[AotcError],
    variants: ProvenVariants,
    folder: Path,
    state: BuildState,
) -> AotcError:
    """What a build ends with whose variants breach gates: all of them, its size included."""
    state.journal.noticed(variants.findings)
    whole = [*variants.proven, *variants.measured]
    return all_breaches(
        [*refusals, *filter(None, [size_breach(whole, variants.weights, folder, state)])]
    )


# What a build's measurements say to its user: no payload has it, as it is not reproducible.


def measured_findings(evidence: Evidence, profile: Profile) -> tuple[Finding, ...]:
    """Tuning on another model, precisions and forms that were given up, both forms of integers,
    other bytes, times that are not steady, and limits below the noise.
    """
    return (
        *tuning_findings(evidence),
        *precision_findings(evidence, profile),
        *slowdown_findings(evidence),
        *form_findings(evidence),
        *keep_findings(evidence),
        *narrow_findings(evidence),
        *repeat_findings(evidence),
        *unsteady_findings(evidence),
        *memory_findings(evidence),
        *noise_findings(evidence.noise),
    )


# How a build ends: its report, or one refusal with every breach.


def build_report(
    signed: SignedArtifact,
    evidence: Evidence,
    findings: tuple[Finding, ...],
    clock: Clock,
    *,
    cached: bool,
    against: str = "",
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
        tuning=evidence.tuning,
        cached=cached,
        against=against,
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
