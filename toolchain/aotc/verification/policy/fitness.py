"""Whether an attestation counts for a policy: its key, its age and its content."""

from __future__ import annotations

from datetime import datetime, timedelta

from aotc.contract.attestation_kinds import Usage
from aotc.contract.target import Target
from aotc.contract.trust.anchors import TrustedKey, key_id
from aotc.contract.trust.attestations import format_instant, parse_instant, target_digest
from aotc.contract.trust.trust_policy import PolicySigner, Requirement, TrustPolicy
from aotc.errors import AotcError
from aotc.records import record
from aotc.verification.policy.host_trust import AppliedPolicy
from aotc.verification.policy.signed_attestations import SignedStatement

# How far the clocks of signers may be ahead.
FUTURE_SLACK = timedelta(hours=1)


@record(kw_only=False)
class Subject:
    """The name, channel and target host (None: this one) for which a policy is applied."""

    name: str
    channel: str
    target: Target | None


def statement_rejection(
    applied: AppliedPolicy,
    statement: SignedStatement,
    subject: Subject,
    requirement: Requirement | None,
) -> AotcError | None:
    """Why a statement does not count for a requirement; None if it counts.

    Without a requirement, only its key and its own content are checked.
    """
    if statement.usage is None:
        return _refusal(
            "AOTC-G025", statement, "the policy does not know this kind of attestation", "", ""
        )
    reason = key_rejection(applied, statement.key, statement.usage)
    if reason is not None:
        reason.where = statement.path
        return reason
    signer = applied.signer_of(statement.key)
    if requirement is not None and (signer is None or signer.id not in requirement.signers):
        return _refusal(
            "AOTC-G026",
            statement,
            "the rule does not name this key",
            ", ".join(requirement.signers),
            signer.id if signer else key_id(statement.key.pem),
        )
    try:
        if statement.usage == "approval":
            return _approval_rejection(applied, statement, subject, requirement) or _age_rejection(
                applied, statement, requirement
            )
        if statement.usage == "qualification":
            return _qualification_rejection(statement, subject, requirement) or _age_rejection(
                applied, statement, requirement
            )
    except AotcError as error:
        return error
    allowed = (
        requirement.builders if requirement is not None and statement.usage == "provenance" else ()
    )
    if allowed and statement.builder() not in allowed:
        return _refusal(
            "AOTC-G031",
            statement,
            "the rule does not list the builder",
            ", ".join(allowed),
            statement.builder() or "no builder",
        )
    return _age_rejection(applied, statement, requirement)


def key_rejection(applied: AppliedPolicy, key: TrustedKey, usage: Usage) -> AotcError | None:
    """Why a key's signature of a kind does not count now; None if it counts.

    The reason is AOTC-G002 (unknown key), G027 (not allowed) or G028 (revoked, or not valid now).
    """
    signer = applied.signer_of(key)
    identity = key_id(key.pem)
    if signer is None:
        return AotcError("AOTC-G002", "the policy does not know the key", found=identity)
    if usage not in signer.usage:
        return AotcError(
            "AOTC-G027",
            "the policy does not allow the key this kind of attestation",
            expected=f"{signer.id}: {', '.join(signer.usage)}",
            found=usage,
        )
    reason = _revocation(applied.policy, signer, (identity, *key.issuers))
    if reason:
        return AotcError("AOTC-G028", "the key is revoked", expected=signer.id, found=reason)
    now = applied.now
    if signer.valid_from is not None and now < parse_instant(signer.valid_from):
        return _outside_validity(signer, f"from {signer.valid_from}", now)
    if signer.valid_until is not None and now >= parse_instant(signer.valid_until):
        return _outside_validity(signer, f"before {signer.valid_until}", now)
    return None


def _revocation(policy: TrustPolicy, signer: PolicySigner, keys: tuple[str, ...]) -> str:
    """Why the signer, the key or a CA on its path is revoked; empty if none is."""
    if signer.revoked is not None:
        return signer.revoked
    for id_ in (signer.id, *keys):
        if id_ in policy.revoked.keys:
            return f"{id_} is listed under revoked.keys"
    return ""


def _approval_rejection(
    applied: AppliedPolicy,
    statement: SignedStatement,
    subject: Subject,
    requirement: Requirement | None,
) -> AotcError | None:
    approval = statement.approval()
    wanted = (
        requirement.channel
        if requirement is not None and requirement.channel is not None
        else subject.channel
    )
    if approval.channel != wanted:
        return _refusal(
            "AOTC-G025",
            statement,
            "the approval is for another channel",
            f"channel {wanted!r}",
            f"channel {approval.channel!r}",
        )
    if applied.now >= parse_instant(approval.expires):
        return _refusal(
            "AOTC-G032",
            statement,
            "the approval has expired",
            f"before {approval.expires}",
            format_instant(applied.now),
        )
    return None


def _qualification_rejection(
    statement: SignedStatement, subject: Subject, requirement: Requirement | None
) -> AotcError | None:
    found = statement.qualification()
    # The digest identifies the host, so it must be that of the target.
    if found.target_sha256 != target_digest(found.target) or found.verdict == "incompatible":
        return _refusal(
            "AOTC-G033", statement, "the qualification failed, or contradicts itself", "", ""
        )
    if requirement is None or requirement.target == "any":
        return None
    wanted = target_digest(_host(subject, found.target))
    if found.target_sha256 != wanted:
        return _refusal(
            "AOTC-G033",
            statement,
            "the qualification is for another kind of host",
            f"target {wanted}",
            f"target {found.target_sha256}",
        )
    return None


def _host(subject: Subject, like: Target) -> Target:
    """The target host; for this host, its GPUs are probed only if `like` has some."""
    if subject.target is not None:
        return subject.target
    from aotc.host.probe import probe

    return probe(gpus=bool(like.gpus or like.nvidia_driver or like.cuda_major is not None))


def _age_rejection(
    applied: AppliedPolicy, statement: SignedStatement, requirement: Requirement | None
) -> AotcError | None:
    if requirement is None or requirement.max_age is None:
        return None
    made = statement.made_at()
    oldest = applied.now - timedelta(days=requirement.max_age)
    if made is not None and oldest <= made <= applied.now + FUTURE_SLACK:
        return None
    return _refusal(
        "AOTC-G032",
        statement,
        "the attestation is too old, or does not say when it was made",
        f"{format_instant(oldest)} or later, and not in the future",
        format_instant(made) if made is not None else "no time",
    )


def _outside_validity(signer: PolicySigner, expected: str, now: datetime) -> AotcError:
    return AotcError(
        "AOTC-G028",
        "the key is outside its validity period",
        expected=f"{signer.id}: {expected}",
        found=format_instant(now),
    )


def _refusal(
    code: str, statement: SignedStatement, what: str, expected: str, found: str
) -> AotcError:
    return AotcError(code, what, where=statement.path, expected=expected, found=found)
