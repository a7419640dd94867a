"""Whether one attestation counts: its key, its age, and what it says."""

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

# Clocks of signers run ahead by so much without harm.
FUTURE_SLACK = timedelta(hours=1)


@record(kw_only=False)
class Subject:
    """What is judged: the artifact's name, for which channel, and for which host (None: this)."""

    name: str
    channel: str
    target: Target | None


def statement_rejection(
    applied: AppliedPolicy, said: SignedStatement, subject: Subject, need: Requirement | None
) -> AotcError | None:
    """Why a statement does not count for `need`, or by itself where no rule asks; None: it does."""
    if said.usage is None:
        return _refusal("AOTC-G025", said, "the policy knows no such attestation", "", "")
    reason = key_rejection(applied, said.key, said.usage)
    if reason is not None:
        reason.where = said.path
        return reason
    holder = applied.signer_of(said.key)
    if need is not None and (holder is None or holder.id not in need.signers):
        return _refusal(
            "AOTC-G026",
            said,
            "the rule does not name this key",
            ", ".join(need.signers),
            holder.id if holder else key_id(said.key.pem),
        )
    try:
        if said.usage == "approval":
            return _unfit_approval(applied, said, subject, need) or _aged(applied, said, need)
        if said.usage == "qualification":
            return _unfit_qualification(said, subject, need) or _aged(applied, said, need)
    except AotcError as error:
        return error
    allowed = need.builders if need is not None and said.usage == "provenance" else ()
    if allowed and said.builder() not in allowed:
        return _refusal(
            "AOTC-G031",
            said,
            "the builder is not one of the rule's",
            ", ".join(allowed),
            said.builder() or "no builder",
        )
    return _aged(applied, said, need)


def key_rejection(applied: AppliedPolicy, key: TrustedKey, usage: Usage) -> AotcError | None:
    """Why a key's signature of this kind does not count now (G027, G028); None where it does."""
    holder = applied.signer_of(key)
    identity = key_id(key.pem)
    if holder is None:
        return AotcError("AOTC-G002", "the policy does not know the key", found=identity)
    if usage not in holder.usage:
        return AotcError(
            "AOTC-G027",
            "the policy does not allow the key this kind of attestation",
            expected=f"{holder.id}: {', '.join(holder.usage)}",
            found=usage,
        )
    reason = _revoked(applied.policy, holder, (identity, *key.issuers))
    if reason:
        return AotcError("AOTC-G028", "the key is revoked", expected=holder.id, found=reason)
    now = applied.now
    if holder.valid_from is not None and now < parse_instant(holder.valid_from):
        return _untimely(holder, f"from {holder.valid_from}", now)
    if holder.valid_until is not None and now >= parse_instant(holder.valid_until):
        return _untimely(holder, f"before {holder.valid_until}", now)
    return None


def _revoked(policy: TrustPolicy, holder: PolicySigner, keys: tuple[str, ...]) -> str:
    """Why the holder, the key or a CA on its path is revoked; empty where none is."""
    if holder.revoked is not None:
        return holder.revoked
    for each in (holder.id, *keys):
        if each in policy.revoked.keys:
            return f"{each} is listed under revoked.keys"
    return ""


def _unfit_approval(
    applied: AppliedPolicy, said: SignedStatement, subject: Subject, need: Requirement | None
) -> AotcError | None:
    approval = said.approval()
    wanted = need.channel if need is not None and need.channel is not None else subject.channel
    if approval.channel != wanted:
        return _refusal(
            "AOTC-G025",
            said,
            "the approval is for another channel",
            f"channel {wanted!r}",
            f"channel {approval.channel!r}",
        )
    if applied.now >= parse_instant(approval.expires):
        return _refusal(
            "AOTC-G032",
            said,
            "the approval has expired",
            f"before {approval.expires}",
            format_instant(applied.now),
        )
    return None


def _unfit_qualification(
    said: SignedStatement, subject: Subject, need: Requirement | None
) -> AotcError | None:
    found = said.qualification()
    # What was measured on one host says nothing of the name that it is filed under.
    if found.target_sha256 != target_digest(found.target) or found.verdict == "incompatible":
        return _refusal(
            "AOTC-G033", said, "the qualification did not pass, or contradicts itself", "", ""
        )
    if need is None or need.target == "any":
        return None
    wanted = target_digest(_host(subject, found.target))
    if found.target_sha256 != wanted:
        return _refusal(
            "AOTC-G033",
            said,
            "the qualification is for another kind of host",
            f"target {wanted}",
            f"target {found.target_sha256}",
        )
    return None


def _host(subject: Subject, like: Target) -> Target:
    """The target that is judged for; of this host, with its GPUs where the other has some."""
    if subject.target is not None:
        return subject.target
    from aotc.host.probe import probe

    return probe(gpus=bool(like.gpus or like.nvidia_driver or like.cuda_major is not None))


def _aged(
    applied: AppliedPolicy, said: SignedStatement, need: Requirement | None
) -> AotcError | None:
    if need is None or need.max_age is None:
        return None
    made = said.made_at()
    oldest = applied.now - timedelta(days=need.max_age)
    if made is not None and oldest <= made <= applied.now + FUTURE_SLACK:
        return None
    return _refusal(
        "AOTC-G032",
        said,
        "the attestation is too old, or does not say when it was made",
        f"{format_instant(oldest)} or later, and not in the future",
        format_instant(made) if made is not None else "no time",
    )


def _untimely(holder: PolicySigner, expected: str, now: datetime) -> AotcError:
    return AotcError(
        "AOTC-G028",
        "the key is outside of its validity",
        expected=f"{holder.id}: {expected}",
        found=format_instant(now),
    )


def _refusal(code: str, said: SignedStatement, what: str, expected: str, found: str) -> AotcError:
    return AotcError(code, what, where=said.path, expected=expected, found=found)
