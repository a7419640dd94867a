"""The build pipeline: the only place where the order of stages is written."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from aotc.caching.cache import BuildCache
from aotc.contract.builtin import load_profile, with_libraries
from aotc.contract.codec.parsing import Json
from aotc.contract.finding import Finding
from aotc.contract.profile import Profile
from aotc.contract.results.reports import BuildReport, Evidence
from aotc.contract.results.tuning import Tried
from aotc.contract.trust.attestations import instant
from aotc.contract.trust.signer import Signer
from aotc.engine.worker_pool import Workers
from aotc.errors import AotcError
from aotc.files.failures import cannot_write, told
from aotc.files.replacing import NEW, put
from aotc.files.work_folders import beside, prepare_output
from aotc.host.probe import probe
from aotc.runtime.rehearsal import Staged, rehearse
from aotc.signing import provenance, sbom
from aotc.signing.keys.signer_loading import load_signer
from aotc.signing.sealing import seal
from aotc.stages.analyze import analyze
from aotc.stages.build_options import BuildOptions
from aotc.stages.claim import partition
from aotc.stages.clock import Clock, Progress
from aotc.stages.fallback import finding_of
from aotc.stages.importing import import_model
from aotc.stages.integer_products import companions, left_out
from aotc.stages.lower import lower
from aotc.stages.opset import convert_opset
from aotc.stages.optimize import optimize_ahead, optimize_all
from aotc.stages.package import digest_weights, package
from aotc.stages.planning.asked import refuse_artifact, target_of, with_dims
from aotc.stages.planning.available import require_providers
from aotc.stages.planning.variants import wanted_variants
from aotc.stages.prove import prove
from aotc.stages.retrying.empty_sizes import fails_empty, not_empty
from aotc.stages.retrying.instead import (
    Attempt,
    drop_failed,
    first_refusal,
    instead_of,
    next_attempts,
    slowed_down,
)
from aotc.stages.retrying.wrong_parts import without
from aotc.stages.reuse.build_key import model_digest, source_digest
from aotc.stages.reuse.cached_build import keep, place_of, take
from aotc.stages.specialize import specialize
from aotc.stages.tuning.candidate_trials import Settled, try_all
from aotc.stages.tuning.choices import choose, resolved, stated_orders
from aotc.stages.tuning.tuned_evidence import tuned_on_another, tuning_of
from aotc.stages.types import (
    AnalyzedModel,
    Artifact,
    LoweredModel,
    ProvenModel,
    ProvenVariants,
    SignedArtifact,
    VariantPlan,
)

# What the jobs of every build import, in their order; the first does so itself.
LATER: Final = (
    "aotc.probing.analysis",
    "aotc.stages.optimize",
    "aotc.stages.prove",
    "aotc.runtime.rehearsal_jobs",
)


def build(
    model: str | Path | bytes,
    *,
    profile: str | Path | Profile = "edge",
    target: str | Path | None = None,
    output: str | Path | None = None,
    key: str | Path | Signer | None = None,
    force: bool = False,
    dims: Mapping[str, str | int] | None = None,
    fixtures: str | Path | None = None,
    embed_fixtures: bool = False,
    cache: bool = True,
    tune: bool = False,
    tuned_from: str | Path | None = None,
    builder_id: str | None = None,
    invocation_id: str = "",
    release: str = "",
    licence: str = "",
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> BuildReport:
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
    refuse_artifact(model)
    started, began = time.monotonic(), datetime.datetime.now(datetime.UTC)
    clock = Clock(progress)
    label = provenance.label(builder_id, invocation_id, release)
    sbom.require_library()
    resolved_profile = (
        with_libraries(profile, Path()) if isinstance(profile, Profile) else load_profile(profile)
    )
    resolved_profile = with_dims(resolved_profile, dims or {})
    if target is not None:
        resolved_profile = replace(resolved_profile, target=str(target))
    name = "model" if isinstance(model, bytes) else Path(model).stem
    place = Path(output) if output is not None else Path(f"{name}.aotc")
    prepare_output(place, folder=True, force=force)
    store = BuildCache() if cache and os.environ.get("AOTC_CACHE") != "off" else None
    given = nullcontext(workers) if workers is not None else None
    with (
        told(str(place)),
        beside(place) as work,
        given or Workers(resolved_profile.limits, LATER) as workers,
    ):
        # While the workers' process starts, and while the first job runs.
        signer = load_signer(key)
        host = probe()
        workers.submit(_import_ahead)
        described = target_of(resolved_profile, host)
        # A path would differ from folder to folder.
        resolved_profile = replace(resolved_profile, target=described.name)
        options = BuildOptions(
            profile=resolved_profile,
            target=described,
            host=host,
            work=work / "build",
            workers=workers,
            cache=store,
            fixtures=Path(fixtures) if fixtures is not None else None,
            embed_fixtures=embed_fixtures,
            progress=progress,
        )
        options.work.mkdir()
        require_providers(options, tune=tune, chosen=tuned_from is not None)
        source = model_digest(model) if store is not None else None
        if tune or tuned_from is not None:
            options = replace(options, judged=stated_orders(resolved_profile))
        front: AnalyzedModel | None = None
        table: tuple[Tried, ...] = ()
        tuned_on = ""
        if tune:
            front, table = _tuned(model, options, clock)
        elif tuned_from is not None:
            measured, tuned_on = tuning_of(Path(tuned_from))
            table = choose(measured)
        if table:
            options = replace(options, profile=resolved(resolved_profile, table))
            require_providers(options)
        built = place_of(source, name, options)
        taken = take(built, work / NEW) if built is not None else None
        artifact, evidence = taken or _line(model, options, work / NEW, clock, front)
        if table:
            evidence = replace(evidence, tuning=table, tuned_on=tuned_on or evidence.model)
        with clock.stage("sign"):
            materials = provenance.gather(
                model,
                label=label,
                started=began,
                fixtures=options.fixtures,
                tuned_from=tuned_from,
                dims=dims or {},
                options={"embed_fixtures": embed_fixtures, "tune": tune},
                host=host,
                source_sha256=source_digest(),
                cached=taken is not None,
                licence=licence,
            )
            seal(artifact.folder, artifact.digests, evidence, materials, signer)
        with clock.stage("check"):
            rehearse(_staged(artifact, signer, options), workers, work / "check")
        # A file that was changed meanwhile may have been read before or after.
        if built is not None and taken is None and model_digest(model) == source:
            with clock.stage("cache"):
                keep(built, artifact, evidence)
        try:
            put(artifact.folder, place, force=force)
        except OSError as error:
            raise cannot_write(error, "cannot write the output", str(place)) from None
        signed = SignedArtifact(
            artifact=artifact,
            path=place,
            key_id=signer.key_id,
            development_key=signer.development,
        )
    return BuildReport(
        artifact=str(signed.path),
        artifact_id=artifact.artifact_id,
        payload_bytes=artifact.payload_bytes,
        key_id=signed.key_id,
        development_key=signed.development_key,
        variants=evidence.variants,
        findings=(
            *artifact.findings,
            *signer.findings,
            *tuned_on_another(evidence),
            *slowed_down(evidence),
            *(store.findings() if store is not None else ()),
        ),
        tuning=table,
        cached=taken is not None,
        stages=clock.seconds,
        seconds=time.monotonic() - started,
    )


def _import_ahead() -> None:
    """What signing needs, while jobs run; what fails here fails there again."""
    sbom.import_library()
    source_digest()


def _staged(artifact: Artifact, signer: Signer, options: BuildOptions) -> Staged:
    """What is to be checked before it is published.

    A payload from the cache was loaded here when it was kept, and has the digests it had then: it
    is judged again, as it is signed anew, and not loaded.
    """
    ran: dict[str, list[str]] = {}
    for each in artifact.proven:
        if each.parity.status == "passed":
            plan = each.lowered.partitioned.optimized.specialized.plan
            ran.setdefault(plan.spec, []).append(plan.name)
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


def _line(
    model: str | Path | bytes,
    options: BuildOptions,
    folder: Path,
    clock: Clock,
    front: AnalyzedModel | None = None,
) -> tuple[Artifact, Evidence]:
    """The whole line; `front` is the model where it was imported and analyzed before."""
    if front is None:
        with clock.stage("import"):
            source = import_model(model, options)
    else:
        source = front.source
    plans, skipped = wanted_variants(source, options)
    ahead = optimize_ahead(source, plans, options)
    if front is None:
        with clock.stage("analyze", f"{source.capture.nodes_total} nodes"):
            analyzed = analyze(source, options)
    else:
        analyzed = front
    begun: list[Finding] = []
    try:
        made, attempts = _settled(analyzed, plans, options, clock, ahead)
        dropped = drop_failed(attempts, made, options)
    except AotcError as error:
        if not fails_empty(analyzed, [error]):
            raise
        begun.append(not_empty(error))
        options = options.apart("not-empty")
        with clock.stage("analyze", "without size 0"):
            analyzed = analyze(source, options, empties=False)
        made, attempts = _settled(analyzed, plans, options, clock, {})
        dropped = drop_failed(attempts, made, options)
    proven = [instead_of(item, attempts, options) for item in made.proven]
    findings: list[Finding] = [*source.capture.findings, *analyzed.findings, *begun, *skipped]
    findings += [*made.findings, *(finding_of(each) for each in dropped)]
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


def _settled(
    analyzed: AnalyzedModel,
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    clock: Clock,
    ahead: Mapping[str, Future[Json]],
) -> Settled:
    """All variants, those that fail tried in other forms until nothing is left to try."""
    attempts = {plan.name: Attempt(plan=plan) for plan in plans}
    apart, number = options, 0
    while True:
        try:
            made = _variants(analyzed, list(attempts.values()), apart, clock, ahead)
            stepped = next_attempts(attempts, made.failed, apart)
        except AotcError as error:
            raise first_refusal(attempts, error) from None
        if not stepped:
            return made, attempts
        attempts, ahead, number = {**attempts, **stepped}, {}, number + 1
        apart = options.apart(f"again-{number}")


def _variants(
    analyzed: AnalyzedModel,
    attempts: Sequence[Attempt],
    options: BuildOptions,
    clock: Clock,
    ahead: Mapping[str, Future[Json]],
) -> ProvenVariants:
    """From the analyzed model to proven variants, each in the form that is tried now."""
    findings: list[Finding] = [each for attempt in attempts for each in attempt.findings]
    with clock.stage("optimize", ", ".join(attempt.plan.name for attempt in attempts)):
        specialized = (specialize(analyzed, attempt.plan, options) for attempt in attempts)
        converted = [convert_opset(each, options) for each in specialized]
        findings += [finding for _, noticed in converted for finding in noticed]
        optimized = optimize_all([each for each, _ in converted], options, ahead)
        quicker, without_quicker = companions(optimized, options)
        try:
            optimized += optimize_all(quicker, options, {})
        except AotcError as error:
            without_quicker = [left_out(quicker[0].plan, f"{error.code} {error.what}")]
    findings += [*without_quicker, *(each for item in optimized for each in item.findings)]
    with clock.stage("partition"):
        wrong = {attempt.plan.name: attempt.wrong for attempt in attempts}
        partitioned = [
            without(item, wrong.get(item.optimized.specialized.plan.name, ()))
            for item in partition(optimized, options)
        ]
    findings += [finding for item in partitioned for finding in item.findings]
    with clock.stage("lower"):
        lowered, policy_left = lower(partitioned, options)
    findings += [finding for item in lowered for finding in item.findings]
    proven: list[ProvenModel] = []
    failed: list[tuple[LoweredModel, AotcError]] = []
    # The weights are final: their digests are taken while the variants are proven.
    with ThreadPoolExecutor(1) as pool:
        folder = lowered[0].weights if lowered else partitioned[0].weights
        weights = pool.submit(digest_weights, folder)
        for item in lowered:
            plan = item.partitioned.optimized.specialized.plan
            try:
                with clock.stage("prove", plan.name):
                    proven.append(prove(item, options))
            except AotcError as error:
                if plan.needed:
                    failed.append((item, error))
                else:
                    findings.append(left_out(plan, f"{error.code} {error.what}"))
        return ProvenVariants(
            proven=tuple(proven),
            failed=tuple(failed),
            left_out=policy_left,
            findings=tuple(findings),
            weights=weights.result(),
        )


def _tuned(
    model: str | Path | bytes, options: BuildOptions, clock: Clock
) -> tuple[AnalyzedModel, tuple[Tried, ...]]:
    """Prove and time every candidate; one that fails is out, whatever it fails on."""
    with clock.stage("import"):
        source = import_model(model, options)
    with clock.stage("analyze", f"{source.capture.nodes_total} nodes"):
        analyzed = analyze(source, options)

    def settle(plan: VariantPlan, apart: BuildOptions) -> Settled:
        return _settled(analyzed, [plan], apart, clock, {})

    return analyzed, try_all(analyzed, options, clock, settle)
