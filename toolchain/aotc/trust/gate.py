"""The gate: what an artifact must pass before it is trusted, loaded or run.

1. Container and limits: regular files, not too many, not too deep, not too large.
2. Strict parse: bundles, aotc.json and manifest.json are unambiguous JSON.
3. Signature: an OMS bundle is signed by a trusted key; no other bundle is invalid.
4. Digests: every signed file exists and has the signed digest.
5. Nothing unlisted: there is no file and no folder besides the signed ones.
6. Schema: aotc.json matches its record, and agrees with manifest.json and the signature.
7. Policy: if there is one, exactly one of its rules matches the artifact, and it is met.
8. Host compatibility: the requirements of each variant are checked against the host or target.
9. Verdict: optimal, degraded or incompatible.

`verify` collects all reasons that are cheap to find.  A step that lacks the result of an earlier
one is `not-run`.  The claims of an untrusted signer can add refusals, but never remove one.
Without a trusted signature no manifest is parsed and no file is hashed: step 3 precedes that part
of step 2. `authenticate`, for loading, stops at the first step that fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from aotc.base import logs
from aotc.base.errors import AotcError, with_others
from aotc.base.interruptions import uninterrupted
from aotc.base.records import record, replace
from aotc.host.probe import installed_versions
from aotc.spec.manifest import Manifest, unproven_findings
from aotc.spec.payload import Finding
from aotc.spec.providers import RUNTIMES
from aotc.spec.reports import (
    NO_TARGET,
    CheckResult,
    PolicyDecision,
    Status,
    VariantVerdict,
    Verdict,
    VerifyReport,
)
from aotc.spec.target import Target
from aotc.spec.trust_anchors import Anchor, TrustedKey, key_id
from aotc.spec.versions import artifact_name, artifact_path, stated_id, stated_reference
from aotc.trust import authenticity, contents
from aotc.trust.authenticity import Examination
from aotc.trust.compatibility import CompatibilityResult, error_of, judge, probe_host, refusal_of
from aotc.trust.container import Container, reread
from aotc.trust.digests import Sink
from aotc.trust.opening import open_container, other_artifact
from aotc.trust.policy.host_trust import Trust, resolve

STEPS = (
    "1 container and limits",
    "2 strict parse",
    "3 signature",
    "4 digests",
    "5 nothing unlisted",
    "6 schema",
    "7 policy",
    "8 host compatibility",
    "9 verdict",
)

_DIGEST_STEP: Final = 3
_POLICY_STEP: Final = 6

# Targets that are not described: this machine, and no host at all.
HOST: Final = "host"

# What is at the path cannot be read as an artifact.
_NOT_AN_ARTIFACT = frozenset(
    {"AOTC-G008", "AOTC-G012", "AOTC-G015", "AOTC-G039"}
    | {"AOTC-I210", "AOTC-I211", "AOTC-I213", "AOTC-I214"}
)


@record
class AuthenticArtifact:
    """An artifact that passed steps 1 to 7: trusted `keys` signed all of its content.

    `id` is the sha256 (hex) of aotc.json; `digests` maps every signed file to its sha256.
    """

    manifest: Manifest
    id: str
    digests: Mapping[str, str]
    keys: tuple[TrustedKey, ...]
    findings: tuple[Finding, ...]
    bytes_hashed: int
    bytes_present: int
    """Of these, the bytes that were not read from the artifact, as the copy had them already."""
    hashed_files: frozenset[str] | None
    """The payload files whose digests were checked; None: all."""
    trust: Trust
    """The trust by which it was verified, at that time."""
    decision: PolicyDecision | None = None
    accepted: frozenset[str] = frozenset()
    """The variants that no build proved, but a trusted qualification for this host did."""

    @property
    def development(self) -> bool:
        """Whether it is signed by development keys only."""
        return all(key.development for key in self.keys)


@record
class CompatibleArtifact:
    """An authentic artifact that runs on `host`, preferably with the variant `best`."""

    authentic: AuthenticArtifact
    host: Target
    verdict: Verdict
    best: str
    variants: tuple[VariantVerdict, ...]
    findings: tuple[Finding, ...]


def authenticate(
    container: Container,
    trust: Trust | Iterable[Anchor],
    *,
    sink: Sink | None = None,
    attestations: Container | None = None,
    present: Container | None = None,
    files_to_read: Callable[[Manifest], Collection[str]] | None = None,
) -> AuthenticArtifact:
    """Run steps 1 to 7, for loading; stops at the first step that fails.

    `files_to_read` gives, for the verified manifest, the payload files that the caller will read.
    The existence of the other files is checked, but not their digests, so the caller must not read
    them.  With `sink`, the verified bytes are copied there while they are read, but for those that
    its folder `present` has already.  With `attestations`, the signatures are read from that
    container instead.
    The release of the artifact is not remembered yet: see `remember_release`.
    Raises the first refusal (AOTC-G, or I001), with the others of that step in `also`.
    """
    vouching = attestations or container
    state = Examination(
        container,
        Trust.of(trust).at_present(),
        origin=vouching.origin,
        present=present,
        files_to_read=files_to_read,
    )
    _run_steps(state, vouching, sink=sink, full=False, collect=False)
    _raise_first(state)
    _judge_policy(state)
    _raise_first(state)
    if state.manifest is None or state.digests is None or not state.signers:
        raise AotcError("AOTC-R999", "the gate passed an artifact without a trusted signature")
    return AuthenticArtifact(
        manifest=state.manifest,
        id=state.artifact_id,
        digests=state.digests,
        keys=tuple(state.signers),
        findings=tuple(state.findings),
        bytes_hashed=state.bytes_hashed,
        bytes_present=state.bytes_present,
        hashed_files=state.hashed_files,
        trust=state.trust,
        decision=state.decision,
        accepted=_accepted(state),
    )


def require_signer(container: Container, trust: Trust | Iterable[Anchor]) -> Mapping[str, str]:
    """Run steps 1 to 3 without parsing manifests, before an artifact is copied anywhere.

    Returns the sha256 of each signed file by its path.  Raises the first refusal, with the others
    of that step in `also`.
    """
    state = Examination(container, Trust.of(trust).at_present())
    authenticity.list_files(state, container)
    _raise_first(state)
    authenticity.parse_bundles(state)
    _raise_first(state)
    authenticity.check_signatures(state)
    _raise_first(state)
    return state.digests or {}


def _raise_first(state: Examination) -> None:
    if state.refusals:
        raise with_others(state.refusals)


def remember_release(authentic: AuthenticArtifact) -> None:
    """Remember, for a policy, that this release was accepted, after every other check.

    Raises AOTC-G030 (a later one was accepted), G035 (no usable trust state) or G036 (the clock).
    """
    if authentic.decision is not None:
        from aotc.trust.policy.evaluation import note_release

        note_release(authentic.trust, authentic.decision, authentic.id)


def check_compatibility(authentic: AuthenticArtifact, host: Target) -> CompatibleArtifact:
    """Run steps 8 and 9.

    Raises AOTC-C009 if no variant runs, with the reasons of each variant in `also`.
    """
    manifest, accepted = authentic.manifest, authentic.accepted
    result = judge(manifest, host, _allowed_variants(authentic.decision), accepted)
    if result.best is None:
        raise with_others(error_of(refusal) for refusal in result.refusals)
    best = next(variant for variant in manifest.variants if variant.name == result.best)
    unproven = unproven_findings(manifest, f"{manifest.name}.aotc", accepted)
    return CompatibleArtifact(
        authentic=authentic,
        host=host,
        verdict=result.verdict,
        best=result.best,
        variants=result.variants,
        findings=(
            *authentic.findings,
            *result.findings,
            # What is said of variants that are not loaded is for who reads, and not for who runs.
            *(each for each in unproven if each.where == f"variant {best.spec or best.name}"),
        ),
    )


@uninterrupted
def verify(
    artifact: str | Path,
    *,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    target: str | Path | None = None,
    full: bool = False,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
) -> VerifyReport:
    """Run the complete gate on an artifact, and report every reason for a refusal.

    `artifact` is the path of a folder or packed artifact, `sha256-<id>` for an entry of a store, or
    a reference `oci://…`, of which only documents and attestations are fetched where these are
    refused already.  `trust` (the path of a trust policy or a file of public keys) or `key` (the
    path of one public key) replaces the default trust, this user's development key.  A host with
    root keys takes only a policy that they signed.  `channel` is the channel for which a policy is
    applied.  `full` also hashes files as a whole whose chunks were hashed.  With
    `unsafe_no_trust_state`, nothing is remembered about a policy and the releases it accepts, so
    older ones may be accepted later; a finding says so.

    `target` is what the variants are judged for: "host" (this machine), the name of a built-in
    target, or the path of a target file.  With "none" no host is judged, and the verdict of an
    authentic artifact is "authentic", which says nothing of where it runs.  By default "host", and
    "none" on a host without ONNX Runtime, which can load nothing.  `ok` of the report is the answer
    to what was asked: steps 1 to 7 hold and, unless for "none", a variant runs on the target.

    A bad artifact raises no error.  Arguments that cannot be used raise AOTC-I001 (there is no such
    file), G013, G019 to G022, G035, G036, G041, G042, I021, I022, I023 or I027.
    """
    (report,) = verify_for_each(
        artifact,
        (default_target() if target is None else str(target),),
        trust=trust,
        key=key,
        full=full,
        channel=channel,
        unsafe_no_trust_state=unsafe_no_trust_state,
    )
    return report


@uninterrupted
def verify_for_each(
    artifact: str | Path,
    targets: Sequence[str | Target],
    *,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    full: bool = False,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
) -> tuple[VerifyReport, ...]:
    """`verify` for several targets, whose signature and digests are checked once.

    `targets` are what `verify` takes, or hosts as they were described; there is at least one.  The
    reports are in their order, and the seconds of each are those until it was known.
    """
    started = time.perf_counter()
    path = artifact_path(artifact)
    asked = [_asked(target) for target in targets]
    trusted = resolve(
        trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state
    ).at_present()
    reports = reread(
        path,
        lambda: _verify_once(path, trusted, asked, full=full, started=started),
        holds=lambda reports: all(report.authentic for report in reports),
    )
    for report in reports:
        codes = tuple(dict.fromkeys(refusal.code for refusal in report.refusals))
        logs.log(
            "verify",
            logs.WARNING if codes else logs.DEBUG,
            f"{artifact_name(path)}: {report.verdict}" + (f": {', '.join(codes)}" if codes else ""),
            path=artifact_name(path),
            artifact=report.artifact_id,
            verdict=report.verdict,
            codes=codes,
            seconds=report.seconds,
        )
    return reports


def default_target() -> str:
    """What `verify` judges the variants for where nobody says: this host, if it could load one."""
    return HOST if installed_versions(RUNTIMES) else NO_TARGET


@record(kw_only=False)
class _Asked:
    """The target that variants are judged for: described, else this host, or none, by its name."""

    described: Target | None
    name: str


def _asked(target: str | Target) -> _Asked:
    """What is asked for a target; raises AOTC-I021, I022, I046 or I001."""
    if isinstance(target, Target):
        return _Asked(target, target.name)
    if target in (HOST, NO_TARGET):
        return _Asked(None, target)
    from aotc.spec.profile_files import load_target

    described = load_target(target)
    return _Asked(described, described.name)


def _verify_once(
    path: Path, trusted: Trust, asked: Sequence[_Asked], *, full: bool, started: float
) -> tuple[VerifyReport, ...]:
    """Run all steps on what is at the path now; the last three for each target."""
    try:
        container = open_container(path)
    except AotcError as error:
        if error.code not in _NOT_AN_ARTIFACT:
            raise
        return tuple(
            VerifyReport(
                artifact=artifact_name(path),
                authentic=False,
                verdict="unverified",
                target=each.name,
                steps=_not_run(0, failed=True),
                refusals=tuple(refusal_of(refusal) for refusal in (error, *error.also)),
                seconds=time.perf_counter() - started,
            )
            for each in asked
        )
    with container:
        state, steps = _examined(container, trusted, asked, full=full)
    return tuple(
        _judge_target(_for_target(state, each), steps, path, each, started=started)
        for each in asked
    )


def verify_part(
    container: Container, trusted: Trust, place: Path, files: Collection[str]
) -> VerifyReport:
    """`verify`, for no host, of the part of an artifact that `container` holds of it.

    `container` lists all files of the artifact, and has the payload files `files`, whose digests
    are checked; that others are not there is no refusal.  `place` is where it was found.
    """
    started = time.perf_counter()
    state = Examination(container, trusted, files_to_read=lambda _: files)
    steps = _run_steps(state, container, sink=None, full=False, collect=True)
    asked = _Asked(None, NO_TARGET)
    return _judge_target(_for_target(state, asked), steps, place, asked, started=started)


def _examined(
    container: Container, trusted: Trust, asked: Sequence[_Asked], *, full: bool
) -> tuple[Examination, list[CheckResult]]:
    """Run steps 1 to 6, on what a registry holds first without the files that are large.

    They are not fetched where another step refuses the artifact for every target.
    """
    origin = container.origin
    if origin:
        state = Examination(container, trusted, origin=origin, files_to_read=lambda _: ())
        steps = _run_steps(state, container, sink=None, full=False, collect=True)
        for each in asked if not state.refusals else ():
            judged = _for_target(state, each)
            _judge_policy(judged)
            if not judged.refusals:
                break
        else:
            if steps[_DIGEST_STEP].status == "passed":
                why = "documents only: the others were not fetched, as another step refuses it"
                steps[_DIGEST_STEP] = _step_result(_DIGEST_STEP, "not-run", why)
            return state, steps
    state = Examination(container, trusted, origin=origin)
    return state, _run_steps(state, container, sink=None, full=full, collect=True)


def _for_target(state: Examination, asked: _Asked) -> Examination:
    """The same for a target: what is found for one is not found for the next."""
    return replace(
        state,
        trust=replace(state.trust, target=asked.described or state.trust.target),
        refusals=list(state.refusals),
        findings=list(state.findings),
        known_refusals=set(state.known_refusals),
    )


def _judge_target(
    state: Examination, steps: list[CheckResult], path: Path, asked: _Asked, *, started: float
) -> VerifyReport:
    """Run steps 7 to 9 for one target, after steps 1 to 6; or to 7 if nothing can be judged."""
    # 7.
    if len(steps) < _POLICY_STEP + 1:
        steps = [*steps, _judge_policy(state)]
    requested = stated_id(path)
    if requested is not None and state.artifact_id not in ("", requested):
        # It was replaced after it was opened.
        state.refuse(other_artifact(state.container.root, requested, state.artifact_id))
    authentic = not state.refusals
    compatibility: CompatibilityResult | None = None
    verdict: Verdict | Literal["unverified", "authentic"] = "unverified"
    if authentic and state.manifest is not None:
        # 8.
        accepted = _accepted(state)
        if asked.name == NO_TARGET:
            verdict, best, host_step = "authentic", None, _step_result(7, "not-run", _not_asked())
        else:
            host = asked.described or probe_host(state.manifest)
            compatibility = judge(state.manifest, host, _allowed_variants(state.decision), accepted)
            state.findings += compatibility.findings
            verdict, best = compatibility.verdict, compatibility.best
            status: Status = "failed" if verdict == "incompatible" else "passed"
            host_step = _step_result(7, status, f"target {host.name}")
        state.findings += unproven_findings(
            state.manifest, stated_reference(path) or path.name, accepted
        )
        if verdict != "incompatible" and state.decision is not None:
            from aotc.trust.policy.evaluation import note_release

            try:
                note_release(state.trust, state.decision, state.artifact_id)
            except AotcError as error:
                # Another process has just accepted a later release.
                state.refuse(error)
                state.decision = replace(state.decision, accepted=False)
                authentic = False
        # 9.
        status = "failed" if verdict == "incompatible" else "passed"
        steps = [
            *steps,
            host_step,
            _step_result(8, status, f"{verdict}: {best}" if best else verdict),
        ]
    else:
        steps = [*steps, *_not_run(7)]
    return VerifyReport(
        artifact=artifact_name(path),
        artifact_id=state.artifact_id,
        origin=state.origin,
        authentic=authentic,
        verdict=verdict,
        signers=tuple(key_id(key.pem) for key in state.signers),
        signer_names=tuple(state.trust.names_of(key) for key in state.signers),
        development_key=bool(state.signers) and all(key.development for key in state.signers),
        target=asked.name,
        steps=tuple(steps),
        refusals=(
            *(refusal_of(error) for error in state.refusals),
            *(compatibility.refusals if compatibility else ()),
        ),
        findings=tuple(state.findings),
        variants=compatibility.variants if compatibility else (),
        best=(compatibility.best or "") if compatibility else "",
        policy=state.decision,
        hashed_bytes=state.bytes_hashed,
        seconds=time.perf_counter() - started,
    )


def _run_steps(
    state: Examination,
    attestations: Container,
    *,
    sink: Sink | None,
    full: bool,
    collect: bool,
) -> list[CheckResult]:
    """Run steps 1 to 6; without `collect`, stop at the first step that fails.

    Where nothing further can be judged, the policy included, step 7 is there as not run.
    """
    steps: list[CheckResult] = []
    state.findings += state.trust.findings
    state.findings += attestations.findings
    reported = 0

    def finish_step(*, established: bool = True) -> bool:
        """Add the result of a step; returns whether to continue."""
        nonlocal reported
        found, reported = len(state.refusals) - reported, len(state.refusals)
        if found:
            steps.append(_step_result(len(steps), "failed", f"{found} refused"))
        else:
            steps.append(_step_result(len(steps), "passed" if established else "not-run"))
        return collect or not state.refusals

    # 1.
    can_continue = authenticity.list_files(state, attestations)
    if not finish_step() or not can_continue:
        return [*steps, *_not_run(len(steps), before=7)]
    # 2 and 3.
    if not _check_bundles(state, collect=collect, finish_step=finish_step):
        return steps
    is_signed = state.digests is not None
    if not is_signed:
        detail = "bundles only: there is no trusted signature over the manifests"
        steps[1] = _with_detail(steps[1], detail)
    # 4.
    contents.check_digests(state, sink=sink, full=full)
    can_continue = finish_step(established=is_signed and not state.unread_reason)
    steps[-1] = _with_detail(steps[-1], state.unread_reason)
    if not can_continue:
        return steps
    # 5.
    contents.check_unlisted(state, sink)
    if not finish_step(established=is_signed):
        return steps
    # 6.
    contents.check_schema(state)
    finish_step(established=state.manifest is not None)
    return steps


def _judge_policy(state: Examination) -> CheckResult:
    """Run step 7."""
    before = len(state.refusals)
    detail = _check_policy(state)
    if found := len(state.refusals) - before:
        return _step_result(_POLICY_STEP, "failed", f"{found} refused")
    judged = state.decision is not None
    return _step_result(_POLICY_STEP, "passed" if judged else "not-run", detail)


def _check_bundles(state: Examination, *, collect: bool, finish_step: Callable[[], bool]) -> bool:
    """Run steps 2 and 3; returns whether to continue.

    The manifests are parsed after a trusted signature over their bytes was found; their refusals
    still come before those of signatures.
    """
    authenticity.parse_bundles(state)
    if state.refusals and not collect:
        return finish_step()
    start = len(state.refusals)
    authenticity.check_signatures(state)
    signature_refusals = state.refusals[start:]
    if collect or not signature_refusals:
        authenticity.parse_documents(state)
    document_refusals = state.refusals[start + len(signature_refusals) :]
    state.refusals[start:] = document_refusals
    can_continue = finish_step()
    state.refusals += signature_refusals
    return can_continue and finish_step()


def _not_asked() -> str:
    """Why step 8 was not run, and what asks for it."""
    absent = "" if installed_versions(RUNTIMES) else ": no ONNX Runtime here"
    return f"not asked{absent}; --target host asks, or --target NAME"


def _with_detail(result: CheckResult, detail: str) -> CheckResult:
    return replace(result, detail="; ".join(text for text in (result.detail, detail) if text))


def _step_result(index: int, status: Status, detail: str = "") -> CheckResult:
    return CheckResult(step=STEPS[index], status=status, detail=detail)


def _not_run(
    start: int, *, before: int = len(STEPS), failed: bool = False
) -> tuple[CheckResult, ...]:
    """The results of steps that were not run; with `failed`, the first of them failed."""
    return tuple(
        _step_result(index, "failed" if failed and index == start else "not-run")
        for index in range(start, before)
    )


def _check_policy(state: Examination) -> str:
    """Step 7: apply the policy; returns the detail of the step, such as `rule default`.

    Without a signed manifest nothing is decided.  Nothing is remembered yet.
    """
    if state.trust.policy is None:
        return "no policy"
    if not state.trust.rules:
        return "the keys of the policy, without its rules"
    if state.manifest is None or state.digests is None:
        return ""
    from aotc.trust.policy.evaluation import judge

    try:
        decision, refusals = judge(
            state.trust,
            state.artifact_id,
            state.manifest.name,
            state.statements,
            repository=state.origin.partition("@")[0],
        )
    except AotcError as error:
        state.refuse(error)
        return ""
    for refusal in refusals:
        state.refuse(refusal)
    state.decision = replace(decision, accepted=not state.refusals)
    return f"rule {decision.rule}" if decision.rule else ""


def _allowed_variants(decision: PolicyDecision | None) -> tuple[str, ...] | None:
    """The names of the variants that a policy allows; None: all."""
    return decision.qualified if decision is not None else None


def _accepted(state: Examination) -> frozenset[str]:
    """The variants that no build proved, but a trusted qualification for the target did."""
    manifest = state.manifest
    if manifest is None or all(each.parity.status == "passed" for each in manifest.variants):
        return frozenset()
    from aotc.trust.policy.evaluation import accepted_variants

    return accepted_variants(state.trust, manifest.name, state.statements)
