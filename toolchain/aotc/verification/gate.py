"""The gate: what an artifact must pass before anything of it is believed, loaded or run.

1. Container and limits: plain files of its own, not too many, not too deep, not too large.
2. Strict parse: bundles, aotc.json and manifest.json are JSON without ambiguity.
3. Signature: an OMS bundle is by a trusted key; every other bundle is intact.
4. Digests: every signed file is there, with the signed bytes.
5. Nothing unlisted: no file, and no folder, beside the signed ones.
6. Schema: aotc.json fits its record, and agrees with manifest.json and the signature.
7. Policy: where there is one, exactly one of its rules is for the artifact, and all of it is met.
8. Host compatibility: the requirements of each variant against the host or target.
9. Verdict: optimal, degraded or incompatible.

`verify` collects every reason that costs little.  A step whose ground was not established is
`not-run`; what an unknown signer claims may add refusals, and never takes one away.  For nobody no
manifest is parsed and no file hashed: step 3 comes before that part of step 2.  `authenticate` is
for loading: it stops at the first failed step, and returns the artifact only when steps 1 to 7
hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from aotc.contract.artifact_names import artifact_path, stated_id
from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.results.policy_decision import PolicyDecision
from aotc.contract.results.reports import CheckResult, Status, VariantVerdict, Verdict, VerifyReport
from aotc.contract.target import Target
from aotc.contract.trust.anchors import Anchor, TrustedKey, key_id
from aotc.errors import AotcError
from aotc.records import record, replace
from aotc.verification import authenticity, contents
from aotc.verification.compatibility import (
    CompatibilityResult,
    asks_for_gpus,
    error_of,
    judge,
    refusal_of,
)
from aotc.verification.container.base import Container
from aotc.verification.container.opening import open_container, other_artifact
from aotc.verification.container.rereading import reread
from aotc.verification.digests import Sink
from aotc.verification.examination import Examination
from aotc.verification.policy.host_trust import Trust, resolve
from aotc.verification.policy_step import allowed_variants, check_policy, note_release

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

# What is at the path cannot be read as an artifact at all.
_NO_ARTIFACT = frozenset({"AOTC-G008", "AOTC-G012", "AOTC-G015", "AOTC-G039"})


@record
class AuthenticArtifact:
    """An artifact that passed steps 1 to 7: a trusted key vouches for all that is here."""

    manifest: Manifest
    id: str
    digests: Mapping[str, str]
    keys: tuple[TrustedKey, ...]
    findings: tuple[Finding, ...]
    bytes_hashed: int
    hashed_files: frozenset[str] | None
    """Files whose bytes were checked; None: all."""
    trust: Trust
    """What it was judged by, at the moment of that."""
    decision: PolicyDecision | None = None

    @property
    def development(self) -> bool:
        """Whether only a development key vouches."""
        return all(key.development for key in self.keys)


@record
class CompatibleArtifact:
    """An authentic artifact of which at least the variant `best` runs on `host`."""

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
    files_to_read: Callable[[Manifest], Collection[str]] | None = None,
) -> AuthenticArtifact:
    """Steps 1 to 7, for loading: each failed step ends it.

    `reads` says which payload files the caller will read, once the manifest is vouched for: of the
    others only the presence is checked, and the caller must not read them.

    With `sink`, what is verified is copied there from the same reads.  With `attestations`,
    the signatures are read from there, for a payload that is held elsewhere.
    Its release is not remembered yet: see `remember_release`.
    Raises the first refusal (AOTC-G, I001), the others of that step in `also`.
    """
    state = Examination(container, Trust.of(trust).at_present(), files_to_read=files_to_read)
    _examine(state, attestations or container, sink=sink, full=False, collect=False)
    _raise_first(state)
    if state.manifest is None or state.digests is None or not state.signers:
        raise AotcError("AOTC-R999", "the gate passed an artifact that nobody vouches for")
    return AuthenticArtifact(
        manifest=state.manifest,
        id=state.artifact_id,
        digests=state.digests,
        keys=tuple(state.signers),
        findings=tuple(state.findings),
        bytes_hashed=state.bytes_hashed,
        hashed_files=state.hashed_files,
        trust=state.trust,
        decision=state.decision,
    )


def require_signer(container: Container, trust: Trust | Iterable[Anchor]) -> None:
    """Steps 1 to 3, but for the manifests: what is asked before an artifact is copied anywhere.

    Raises the first refusal, the others of that step in `also`.
    """
    state = Examination(container, Trust.of(trust).at_present())
    authenticity.list_files(state, container)
    _raise_first(state)
    authenticity.parse_bundles(state)
    _raise_first(state)
    authenticity.check_signatures(state)
    _raise_first(state)


def _raise_first(state: Examination) -> None:
    if state.refusals:
        first, *others = state.refusals
        first.also = tuple(others)
        raise first


def remember_release(authentic: AuthenticArtifact) -> None:
    """Note, for a policy, that this release was accepted, once all that is asked of it holds.

    Raises G030, G035, G036.
    """
    if authentic.decision is not None:
        note_release(authentic.trust, authentic.decision, authentic.id)


def check_compatibility(authentic: AuthenticArtifact, host: Target) -> CompatibleArtifact:
    """Steps 8 and 9; raises C009, with each variant's reasons in `also`, where none runs."""
    judgement = judge(authentic.manifest, host, allowed_variants(authentic.decision))
    if judgement.best is None:
        first, *others = (error_of(refusal) for refusal in judgement.refusals)
        first.also = tuple(others)
        raise first
    return CompatibleArtifact(
        authentic=authentic,
        host=host,
        verdict=judgement.verdict,
        best=judgement.best,
        variants=judgement.variants,
        findings=(*authentic.findings, *judgement.findings),
    )


def verify(
    artifact: str | Path,
    *,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    target: str | Path = "host",
    full: bool = False,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
) -> VerifyReport:
    """Run the whole gate on an artifact and report every reason.

    `trust` (a trust policy, or a file of public keys) or `key` (one public key) replaces the
    default trust, which is this user's development key; on a host with root keys, only a policy
    that they signed is taken.  `channel` is what a policy judges the artifact for.
    `target` is "host", a built-in target or a target file.
    `full` also hashes whole files whose chunks were hashed.
    `unsafe_no_trust_state` remembers nothing of what a policy takes, as where no file can be kept,
    so that older policies and releases may be taken later; a finding says so.
    Never raises for a bad artifact; raises I001 (no such path or key file), G013, G019 to G022,
    G035, G036, G041, G042, I021, I022, I023 and I027 for arguments that cannot be used.
    """
    started = time.perf_counter()
    path = artifact_path(artifact)
    described = None if str(target) == "host" else _load_target(target)
    trusted = resolve(
        trust,
        key,
        channel=channel,
        target=described,
        unsafe_no_trust_state=unsafe_no_trust_state,
    ).at_present()
    return reread(
        path,
        lambda: _judged(path, trusted, described, full=full, started=started),
        holds=lambda report: report.authentic,
    )


def _judged(
    path: Path, trusted: Trust, described: Target | None, *, full: bool, started: float
) -> VerifyReport:
    """All steps on what is at the path now."""
    try:
        container = open_container(path)
    except AotcError as error:
        if error.code not in _NO_ARTIFACT:
            raise
        return VerifyReport(
            artifact=str(path),
            authentic=False,
            verdict="unverified",
            target=described.name if described else "host",
            steps=_not_run(0, failed=True),
            refusals=tuple(refusal_of(each) for each in (error, *error.also)),
            seconds=time.perf_counter() - started,
        )
    with container:
        state = Examination(container, trusted)
        steps = _examine(state, container, sink=None, full=full, collect=True)
    asked = stated_id(path)
    if asked is not None and state.artifact_id not in ("", asked):
        # It was the one that was asked for when it was opened.
        state.refuse(other_artifact(container.root, asked, state.artifact_id))
    authentic = not state.refusals
    judgement: CompatibilityResult | None = None
    if authentic and state.manifest is not None:
        # 8.
        host = described or _probe(state.manifest)
        judgement = judge(state.manifest, host, allowed_variants(state.decision))
        fits = judgement.best is not None
        if fits and state.decision is not None:
            try:
                note_release(trusted, state.decision, state.artifact_id)
            except AotcError as error:
                # Another process accepted a later one just now.
                state.refuse(error)
                state.decision = replace(state.decision, accepted=False)
                authentic = False
        steps.append(_result(7, "passed" if fits else "failed", f"target {host.name}"))
        # 9.
        detail = judgement.verdict + (f": {judgement.best}" if judgement.best else "")
        steps.append(_result(8, "passed" if fits else "failed", detail))
    else:
        steps += _not_run(7)
    return VerifyReport(
        artifact=str(path),
        artifact_id=state.artifact_id,
        authentic=authentic,
        verdict=judgement.verdict if judgement else "unverified",
        signers=tuple(key_id(each.pem) for each in state.signers),
        signer_names=tuple(trusted.names_of(each) for each in state.signers),
        development_key=bool(state.signers) and all(each.development for each in state.signers),
        target=described.name if described else "host",
        steps=tuple(steps),
        refusals=(
            *(refusal_of(error) for error in state.refusals),
            *(judgement.refusals if judgement else ()),
        ),
        findings=(*state.findings, *(judgement.findings if judgement else ())),
        variants=judgement.variants if judgement else (),
        policy=state.decision,
        bytes_hashed=state.bytes_hashed,
        seconds=time.perf_counter() - started,
    )


def _examine(
    state: Examination,
    attestations: Container,
    *,
    sink: Sink | None,
    full: bool,
    collect: bool,
) -> list[CheckResult]:
    """Steps 1 to 7 into `state`; without `collect`, the first failed one ends it."""
    steps: list[CheckResult] = []
    state.findings += state.trust.findings
    seen = 0

    def done(*, established: bool = True) -> bool:
        """Note the step's result; whether to go on."""
        nonlocal seen
        found, seen = len(state.refusals) - seen, len(state.refusals)
        if found:
            steps.append(_result(len(steps), "failed", f"{found} refused"))
        else:
            steps.append(_result(len(steps), "passed" if established else "not-run"))
        return collect or not state.refusals

    # 1.
    goes_on = authenticity.list_files(state, attestations)
    if not done() or not goes_on:
        return [*steps, *_not_run(len(steps), before=7)]
    # 2 and 3.
    if not _find_signers(state, collect=collect, done=done):
        return steps
    vouched = state.digests is not None
    if not vouched:
        steps[1] = _with_detail(steps[1], "bundles alone: nobody vouches for the manifests")
    # 4.
    contents.check_digests(state, sink=sink, full=full)
    goes_on = done(established=vouched and not state.unread_reason)
    steps[-1] = _with_detail(steps[-1], state.unread_reason)
    if not goes_on:
        return steps
    # 5.
    contents.check_unlisted(state, sink)
    if not done(established=vouched):
        return steps
    # 6.
    contents.check_schema(state)
    if not done(established=state.manifest is not None):
        return steps
    # 7.
    detail = check_policy(state)
    done(established=state.decision is not None)
    steps[-1] = replace(steps[-1], detail=steps[-1].detail or detail)
    return steps


def _find_signers(state: Examination, *, collect: bool, done: Callable[[], bool]) -> bool:
    """Steps 2 and 3; whether to go on.

    The bundles come first, and the manifests once a trusted key vouches for their bytes; what is
    wrong with them stands before what is wrong with signatures all the same.
    """
    authenticity.parse_bundles(state)
    if state.refusals and not collect:
        return done()
    place = len(state.refusals)
    authenticity.check_signatures(state)
    of_signatures = state.refusals[place:]
    if collect or not of_signatures:
        authenticity.parse_documents(state)
    of_documents = state.refusals[place + len(of_signatures) :]
    state.refusals[place:] = of_documents
    goes_on = done()
    state.refusals += of_signatures
    return goes_on and done()


def _with_detail(result: CheckResult, detail: str) -> CheckResult:
    return replace(result, detail="; ".join(each for each in (result.detail, detail) if each))


def _result(index: int, status: Status, detail: str = "") -> CheckResult:
    return CheckResult(step=STEPS[index], status=status, detail=detail)


def _not_run(
    start: int, *, before: int = len(STEPS), failed: bool = False
) -> tuple[CheckResult, ...]:
    """Results of the steps that were not reached; with `failed`, the first of them failed."""
    return tuple(
        _result(index, "failed" if failed and index == start else "not-run")
        for index in range(start, before)
    )


def _probe(manifest: Manifest) -> Target:
    from aotc.host.probe import probe

    needs = [variant.requirements for variant in manifest.variants]
    return probe(gpus=asks_for_gpus(needs), digests=any(each.plugins for each in needs))


def _load_target(target: str | Path) -> Target:
    from aotc.contract.builtin import load_target

    return load_target(target)
