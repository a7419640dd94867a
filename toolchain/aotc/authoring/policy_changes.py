"""New policies and changes of policies; each change increases the policy's sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from aotc.contract.attestation_kinds import KINDS, Usage
from aotc.contract.trust.attestations import format_instant
from aotc.contract.trust.trust_policy import (
    MAX_DAYS,
    Match,
    PolicyIdentity,
    PolicyKey,
    Requirement,
    Revoked,
    Rule,
    TrustPolicy,
)
from aotc.errors import AotcError
from aotc.records import field, record, replace

_ID_DIGITS: Final = 64

T = TypeVar("T", PolicyKey, Rule)
S = TypeVar("S", PolicyKey, PolicyIdentity)

# What a builder's key signs.
BUILDER_USAGE: Final[tuple[Usage, ...]] = tuple(
    kind.usage for kind in KINDS.values() if kind.by_build
)


@record
class Change:
    """Additions to a policy; a key or rule replaces one of the same name.

    `reasons` maps ids of the policy's keys, authorities or identities to the reason why they are
    revoked.  `name` is a new name for the policy, which then states that it replaces the old name.
    """

    keys: tuple[PolicyKey, ...] = ()
    authorities: tuple[PolicyKey, ...] = ()
    rules: tuple[Rule, ...] = ()
    revoked: Revoked = field(default_factory=Revoked)
    reasons: Mapping[str, str] = field(default_factory=dict)
    rollback: tuple[str, ...] = ()
    expires: str | None = None
    name: str | None = None


def new_policy(name: str, signers: Iterable[tuple[str, str]], days: int) -> TrustPolicy:
    """A policy that accepts every artifact signed by one of `signers`, valid for `days` days.

    `signers` are pairs of an id and a public key (PEM).  Raises AOTC-I027 if `days` is less than 1
    or more than `MAX_DAYS`.
    """
    if not 0 < days <= MAX_DAYS:
        raise AotcError(
            "AOTC-I027",
            "a policy cannot be valid for so long",
            where="--days",
            expected=f"1 to {MAX_DAYS} days",
            found=f"{days}"[:40],
        )
    listed = tuple(signers)
    requirement = Requirement(predicate="oms", signers=tuple(name for name, _ in listed))
    return TrustPolicy(
        schema="aotc.trust/1",
        name=name,
        sequence=1,
        expires=format_instant(datetime.now(UTC) + timedelta(days=days)),
        keys=tuple(PolicyKey(id=name, pem=pem, usage=BUILDER_USAGE) for name, pem in listed),
        rules=(Rule(name="default", match=Match(name="*"), require=(requirement,)),),
    )


def apply_change(policy: TrustPolicy, change: Change) -> TrustPolicy:
    """The policy with a change, and the next sequence.

    Raises AOTC-I027 if a reason is for an id that the policy does not have, or if an artifact is
    not named by its full id.
    """
    _require_full_ids("--revoke-artifact", change.revoked.artifacts)
    _require_full_ids("--allow-rollback", change.rollback)
    keys = _merge_by(policy.keys, change.keys, "id")
    authorities = _merge_by(policy.authorities, change.authorities, "id")
    known = {key.id for key in (*keys, *authorities)}
    known |= {identity.id for identity in policy.identities}
    for unknown in change.reasons.keys() - known:
        raise AotcError(
            "AOTC-I027",
            "a reason is given for an id that this policy does not have",
            where="--revoke-key",
            expected=", ".join(sorted(known)),
            found=unknown,
        )
    name = change.name or policy.name
    former = _union(policy.replaces, () if name == policy.name else (policy.name,))
    return replace(
        policy,
        name=name,
        replaces=tuple(old for old in former if old != name),
        sequence=policy.sequence + 1,
        expires=change.expires or policy.expires,
        keys=_with_reasons(keys, change.reasons),
        authorities=_with_reasons(authorities, change.reasons),
        identities=_with_reasons(policy.identities, change.reasons),
        rules=_merge_by(policy.rules, change.rules, "name"),
        revoked=Revoked(
            artifacts=_union(policy.revoked.artifacts, change.revoked.artifacts),
            keys=_union(policy.revoked.keys, change.revoked.keys),
        ),
        rollback=_union(policy.rollback, change.rollback),
    )


def _merge_by(old: tuple[T, ...], new: tuple[T, ...], field_name: str) -> tuple[T, ...]:
    merged = {getattr(item, field_name): item for item in old}
    merged.update({getattr(item, field_name): item for item in new})
    return tuple(merged.values())


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))


def _with_reasons(signers: tuple[S, ...], reasons: Mapping[str, str]) -> tuple[S, ...]:
    return tuple(
        replace(signer, revoked=reasons.get(signer.id, signer.revoked)) for signer in signers
    )


def _require_full_ids(option: str, ids: Iterable[str]) -> None:
    for id_ in ids:
        if len(id_) != _ID_DIGITS or not set(id_) <= set("0123456789abcdef"):
            raise AotcError(
                "AOTC-I027",
                "an artifact must be named by its full id",
                where=option,
                expected=f"the {_ID_DIGITS} digits of the sha256 of its aotc.json",
                found=id_,
                fix="'aotc verify' and 'aotc inspect' show the id of an artifact.",
            )
