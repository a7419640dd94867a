"""What a policy decides of an artifact whose payload and signature hold.

1. The artifact is not revoked.
2. Exactly one rule is for its name and channel.
3. Every requirement of the rule is met, by distinct public keys.
4. Its release is not below what the policy demands, nor below what this host has accepted.

Nothing counts that does not: a key counts by itself, never by its name, its hint or its
signature's bytes; an attestation counts by its signed type, never by its file's name.
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
    """The decision, and every reason for a no."""

    decision: PolicyDecision
    refusals: list[AotcError] = field(default_factory=list)


def judge(
    trust: Trust, artifact_id: str, name: str, statements: Sequence[SignedStatement]
) -> PolicyResult:
    """Apply the policy of `trust` to an artifact; nothing is remembered here.

    The artifact's bytes and the statements' signatures must have been verified.
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
        looked_at = match_rules(applied.policy, name, channel.name)
        rule = select_rule(applied.policy, looked_at, name, channel.name)
    except AotcError as error:
        looked_at = match_rules(applied.policy, name, channel.name)
        refusals.append(error)
    outcomes: list[RequirementResult] = []
    subject = Subject(name, channel.name, trust.target)
    for need in rule.require if rule else ():
        outcome, refused = _required(applied, need, subject, statements)
        outcomes.append(outcome)
        refusals += refused
    release = _release(applied, subject, rule, statements) if rule else None
    qualified = qualified_variants(applied, rule, subject, statements) if rule else None
    highest = applied.state.read().artifacts.get(name) if applied.state else None
    if rule is not None:
        refusals += _too_old(applied, rule, name, artifact_id, release, highest)
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
            rules=looked_at,
            requirements=tuple(outcomes),
            qualified=qualified,
            release=release,
            highest=highest,
        ),
        refusals,
    )


def note_release(trust: Trust, decision: PolicyDecision, artifact_id: str) -> None:
    """Note the release of an accepted artifact; raises G030, G035, G036.

    Another process may have noted a later one since it was judged.
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


def _required(
    applied: AppliedPolicy,
    need: Requirement,
    subject: Subject,
    statements: Iterable[SignedStatement],
) -> tuple[RequirementResult, list[AotcError]]:
    considered: list[ConsideredAttestation] = []
    newer: list[str] = []
    spoiled: list[AotcError] = []
    strays: list[AotcError] = []
    counted: list[tuple[str, str]] = []
    for each in statements:
        if each.usage != need.predicate:
            known = older_kind(each.predicate_type)
            if known is not None and known.usage == need.predicate:
                newer.append(each.path)
            continue
        reason = statement_rejection(applied, each, subject, need)
        holder = applied.signer_of(each.key)
        if reason is None:
            # Neither a person with two keys nor a key with two names is two signers.
            counted.append((each.key.pem, applied.signer_name(each.key)))
        # What is not by a signer of the rule, or for another channel, spoils nothing.
        elif holder is not None and holder.id in need.signers and reason.code != "AOTC-G025":
            spoiled.append(reason)
        elif reason.code != "AOTC-G025":
            strays.append(reason)
        considered.append(
            ConsideredAttestation(
                path=each.path,
                key=key_id(each.key.pem),
                id=holder.id if holder else "",
                counts=reason is None,
                code=reason.code if reason else "",
                why=reason.what + expected_and_found(reason.expected, reason.found)
                if reason
                else "",
            )
        )
    distinct = distinct_signers(counted)
    met = distinct >= need.threshold
    outcome = RequirementResult(
        predicate=need.predicate,
        signers=need.signers,
        threshold=need.threshold,
        distinct=distinct,
        met=met,
        considered=tuple(considered),
    )
    if met:
        return outcome, []
    return outcome, _unmet(need, subject, outcome, spoiled, strays, newer)


def _unmet(
    need: Requirement,
    subject: Subject,
    outcome: RequirementResult,
    spoiled: list[AotcError],
    strays: list[AotcError],
    newer: list[str],
) -> list[AotcError]:
    """Why a requirement is not met: what spoils attestations by its signers, or who is missing."""
    if spoiled and outcome.distinct + len(spoiled) >= need.threshold:
        return spoiled
    wanted = f"{need.predicate} by {need.threshold} of: {', '.join(need.signers)}"
    counts = {each.id for each in outcome.considered if each.counts}
    missing = ", ".join(each for each in need.signers if each not in counts)
    if not counts and not spoiled:
        where = f"channel {subject.channel!r}" if need.predicate == "approval" else ATTESTATIONS
        others = f"; {len(outcome.considered)} others do not count" if outcome.considered else ""
        others += f"; made by a newer aotc: {', '.join(newer)}" if newer else ""
        return [
            AotcError(
                "AOTC-G025",
                f"the required {need.predicate} is missing",
                where=where,
                expected=wanted,
                found=f"none by them{others}",
            ),
            *strays,
        ]
    return [
        AotcError(
            "AOTC-G026",
            f"too few distinct keys made the required {need.predicate}",
            where=ATTESTATIONS,
            expected=wanted,
            found=f"{outcome.distinct} that count" + (f"; none by {missing}" if missing else ""),
        ),
        *spoiled,
    ]


def _release(
    applied: AppliedPolicy, subject: Subject, rule: Rule, statements: Iterable[SignedStatement]
) -> ArtifactRelease:
    """The release of an artifact, by statements that the policy takes (see `release`).

    Of several the latest that as many signers as the rule asks for say of it: equal payloads may be
    released again, and one of two signers alone cannot renew an artifact.
    """
    said: dict[str, list[tuple[ArtifactRelease, str, str]]] = {
        "version": [],
        "approved": [],
        "built": [],
    }
    for each in statements:
        needs: list[Requirement | None] = []
        needs += [need for need in rule.require if need.predicate == each.usage]
        if all(
            statement_rejection(applied, each, subject, need) is not None
            for need in needs or [None]
        ):
            continue
        signer = (each.key.pem, applied.signer_name(each.key))
        made = each.made_at()
        if made is not None and made > applied.now + FUTURE_SLACK:
            # Remembered, it would have every honest release refused until then.
            made = None
        if each.usage == "provenance":
            if is_version(each.version()):
                said["version"].append(
                    (ArtifactRelease(kind="version", value=each.version()), *signer)
                )
            if made is not None:
                said["built"].append(
                    (ArtifactRelease(kind="built", value=format_instant(made)), *signer)
                )
        elif each.usage == "approval" and made is not None:
            said["approved"].append(
                (ArtifactRelease(kind="approved", value=format_instant(made)), *signer)
            )
    for kind, usage in (
        ("version", "provenance"),
        ("approved", "approval"),
        ("built", "provenance"),
    ):
        asked = max((need.threshold for need in rule.require if need.predicate == usage), default=1)
        signed: list[tuple[str, str]] = []
        for release, key, person in sorted(
            said[kind], key=lambda one: release_order(one[0]), reverse=True
        ):
            signed.append((key, person))
            if distinct_signers(signed) >= asked:
                return release
    return ArtifactRelease(kind="built", value="")


def _too_old(
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
    for least in (rule.min_version, applied.policy.min_versions.get(name)):
        if least is not None and is_below(release, least):
            found.append(
                AotcError(
                    "AOTC-G030",
                    "the artifact is older than the policy demands",
                    where=name,
                    expected=f"{least} or later",
                    found=f"{release.kind} {release.value}" if release.value else "no version",
                )
            )
    try:
        check_artifact(highest, name, release, allowed=allowed)
    except AotcError as error:
        found.append(error)
    return found
