"""Applying a policy to an artifact whose digests and signatures are valid.

1. The artifact is not revoked.
2. Exactly one rule matches its name and channel.
3. Every requirement of the rule is met, by distinct public keys.
4. Its release is not older than the policy requires, or than one that this host has accepted.

Keys are compared themselves, not their names, hints or signatures; the kind of an attestation is
its signed type, not the name of its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotc.contract.attestation_kinds import older_kind
from aotc.contract.results.policy_decision import (
    ArtifactRelease,
    ConsideredAttestation,
    PolicyDecision,
    RequirementResult,
)
from aotc.contract.trust.anchors import key_id
from aotc.contract.trust.attestations import format_instant
from aotc.contract.trust.trust_policy import Requirement, Rule
from aotc.errors import AotcError, expected_and_found
from aotc.files.artifact_layout import ATTESTATIONS
from aotc.records import field, record
from aotc.verification.policy.channel import Channel, channel_of
from aotc.verification.policy.distinct_signers import distinct_signers
from aotc.verification.policy.fitness import FUTURE_SLACK, Subject, statement_rejection
from aotc.verification.policy.host_trust import AppliedPolicy, Trust
from aotc.verification.policy.match import match_rules, select_rule
from aotc.verification.policy.qualified import qualified_variants
from aotc.verification.policy.release import is_below, is_version, release_order
from aotc.verification.policy.signed_attestations import SignedStatement
from aotc.verification.policy.state import check_artifact


@record(frozen=False, kw_only=False)
class PolicyResult:
    """The decision of a policy, and every reason for a refusal."""

    decision: PolicyDecision
    refusals: list[AotcError] = field(default_factory=list)


def judge(
    trust: Trust, artifact_id: str, name: str, statements: Sequence[SignedStatement]
) -> PolicyResult:
    """Apply the policy of `trust` to an artifact, without remembering anything.

    The digests of the artifact and the signatures of the statements must have been verified.
    """
    applied = trust.policy
    if applied is None:
        raise AotcError("AOTC-R999", "there is no policy to apply")
    refusals: list[AotcError] = []
    if artifact_id in applied.policy.revoked.artifacts:
        refusals.append(
            AotcError(
                "AOTC-G029", "the policy revokes this artifact", where=name, found=artifact_id
            )
        )
    channel = Channel("", "")
    rule: Rule | None = None
    try:
        channel = channel_of(trust.channel, statements, applied)
        rule_matches = match_rules(applied.policy, name, channel.name)
        rule = select_rule(applied.policy, rule_matches, name, channel.name)
    except AotcError as error:
        rule_matches = match_rules(applied.policy, name, channel.name)
        refusals.append(error)
    results: list[RequirementResult] = []
    subject = Subject(name, channel.name, trust.target)
    for requirement in rule.require if rule else ():
        result, refused = _check_requirement(applied, requirement, subject, statements)
        results.append(result)
        refusals += refused
    release = _find_release(applied, subject, rule, statements) if rule else None
    qualified = qualified_variants(applied, rule, subject, statements) if rule else None
    highest = applied.state.read().artifacts.get(name) if applied.state else None
    if rule is not None:
        refusals += _release_refusals(applied, rule, name, artifact_id, release, highest)
    return PolicyResult(
        PolicyDecision(
            policy=applied.policy.name,
            sequence=applied.policy.sequence,
            sha256=applied.sha256,
            expires=applied.policy.expires,
            roots=applied.roots,
            artifact=name,
            channel=channel.name,
            channel_from=channel.source,
            accepted=not refusals,
            rule=rule.name if rule else "",
            rules=rule_matches,
            requirements=tuple(results),
            qualified=qualified,
            release=release,
            highest=highest,
        ),
        refusals,
    )


def note_release(trust: Trust, decision: PolicyDecision, artifact_id: str) -> None:
    """Remember the release of an accepted artifact.

    Raises AOTC-G030 if another process has meanwhile remembered a later one, G035 and G036.
    """
    applied = trust.policy
    if applied is None or applied.state is None or not applied.remembers:
        return
    if decision.release is None:
        return
    applied.state.note_artifact(
        decision.artifact,
        decision.release,
        applied.now,
        allowed=artifact_id in applied.policy.rollback,
    )


def _check_requirement(
    applied: AppliedPolicy,
    requirement: Requirement,
    subject: Subject,
    statements: Iterable[SignedStatement],
) -> tuple[RequirementResult, list[AotcError]]:
    considered: list[ConsideredAttestation] = []
    newer: list[str] = []
    rejected: list[AotcError] = []
    by_others: list[AotcError] = []
    counted: list[tuple[str, str]] = []
    for statement in statements:
        if statement.usage != requirement.predicate:
            known = older_kind(statement.predicate_type)
            if known is not None and known.usage == requirement.predicate:
                newer.append(statement.path)
            continue
        reason = statement_rejection(applied, statement, subject, requirement)
        signer = applied.signer_of(statement.key)
        if reason is None:
            # A person with two keys is one signer, and so is a key with two names.
            counted.append((statement.key.pem, applied.signer_name(statement.key)))
        # Statements by other signers, or for another channel, do not make the requirement fail.
        elif signer is not None and signer.id in requirement.signers and reason.code != "AOTC-G025":
            rejected.append(reason)
        elif reason.code != "AOTC-G025":
            by_others.append(reason)
        considered.append(
            ConsideredAttestation(
                path=statement.path,
                key=key_id(statement.key.pem),
                id=signer.id if signer else "",
                counts=reason is None,
                code=reason.code if reason else "",
                why=reason.what + expected_and_found(reason.expected, reason.found)
                if reason
                else "",
            )
        )
    distinct = distinct_signers(counted)
    met = distinct >= requirement.threshold
    result = RequirementResult(
        predicate=requirement.predicate,
        signers=requirement.signers,
        threshold=requirement.threshold,
        distinct=distinct,
        met=met,
        considered=tuple(considered),
    )
    if met:
        return result, []
    return result, _unmet(requirement, subject, result, rejected, by_others, newer)


def _unmet(
    requirement: Requirement,
    subject: Subject,
    result: RequirementResult,
    rejected: list[AotcError],
    by_others: list[AotcError],
    newer: list[str],
) -> list[AotcError]:
    """Why a requirement is not met: rejected attestations of its signers, or missing signers."""
    if rejected and result.distinct + len(rejected) >= requirement.threshold:
        return rejected
    signers = ", ".join(requirement.signers)
    expected = f"{requirement.predicate} by {requirement.threshold} of: {signers}"
    counts = {attestation.id for attestation in result.considered if attestation.counts}
    missing = ", ".join(signer for signer in requirement.signers if signer not in counts)
    if not counts and not rejected:
        where = ATTESTATIONS
        if requirement.predicate == "approval":
            where = f"channel {subject.channel!r}"
        others = f"; {len(result.considered)} others do not count" if result.considered else ""
        others += f"; made by a newer aotc: {', '.join(newer)}" if newer else ""
        return [
            AotcError(
                "AOTC-G025",
                f"the required {requirement.predicate} is missing",
                where=where,
                expected=expected,
                found=f"none by them{others}",
            ),
            *by_others,
        ]
    return [
        AotcError(
            "AOTC-G026",
            f"too few distinct keys made the required {requirement.predicate}",
            where=ATTESTATIONS,
            expected=expected,
            found=f"{result.distinct} that count" + (f"; none by {missing}" if missing else ""),
        ),
        *rejected,
    ]


def _find_release(
    applied: AppliedPolicy,
    subject: Subject,
    rule: Rule,
    statements: Iterable[SignedStatement],
) -> ArtifactRelease:
    """The release of an artifact, by statements that the policy accepts (see `release`).

    It is the latest release that as many signers as the rule requires agree on: an equal payload
    may be released again, which must not need fewer signers than the rule requires.
    """
    stated: dict[str, list[tuple[ArtifactRelease, str, str]]] = {
        "version": [],
        "approved": [],
        "built": [],
    }
    for statement in statements:
        requirements: list[Requirement | None] = []
        requirements += [need for need in rule.require if need.predicate == statement.usage]
        if all(
            statement_rejection(applied, statement, subject, need) is not None
            for need in requirements or [None]
        ):
            continue
        signer = (statement.key.pem, applied.signer_name(statement.key))
        made = statement.made_at()
        if made is not None and made > applied.now + FUTURE_SLACK:
            # Once remembered, a future time would make every later release too old.
            made = None
        if statement.usage == "provenance":
            if is_version(statement.version()):
                release = ArtifactRelease(kind="version", value=statement.version())
                stated["version"].append((release, *signer))
            if made is not None:
                release = ArtifactRelease(kind="built", value=format_instant(made))
                stated["built"].append((release, *signer))
        elif statement.usage == "approval" and made is not None:
            release = ArtifactRelease(kind="approved", value=format_instant(made))
            stated["approved"].append((release, *signer))
    for kind, usage in (
        ("version", "provenance"),
        ("approved", "approval"),
        ("built", "provenance"),
    ):
        thresholds = (need.threshold for need in rule.require if need.predicate == usage)
        threshold = max(thresholds, default=1)
        signed: list[tuple[str, str]] = []
        latest_first = sorted(stated[kind], key=lambda item: release_order(item[0]), reverse=True)
        for release, key, name in latest_first:
            signed.append((key, name))
            if distinct_signers(signed) >= threshold:
                return release
    return ArtifactRelease(kind="built", value="")


def _release_refusals(
    applied: AppliedPolicy,
    rule: Rule,
    name: str,
    artifact_id: str,
    release: ArtifactRelease | None,
    highest: ArtifactRelease | None,
) -> list[AotcError]:
    found: list[AotcError] = []
    if release is None:
        return found
    allowed = artifact_id in applied.policy.rollback
    for minimum in (rule.min_version, applied.policy.min_versions.get(name)):
        if minimum is not None and is_below(release, minimum):
            found.append(
                AotcError(
                    "AOTC-G030",
                    "the artifact is older than the policy requires",
                    where=name,
                    expected=f"{minimum} or later",
                    found=f"{release.kind} {release.value}" if release.value else "no version",
                )
            )
    try:
        check_artifact(highest, name, release, allowed=allowed)
    except AotcError as error:
        found.append(error)
    return found
