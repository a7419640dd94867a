"""Policies made and changed: each change is a new sequence of the same policy."""

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
H = TypeVar("H", PolicyKey, PolicyIdentity)

# What the key of a builder signs.
BUILDER_USAGE: Final[tuple[Usage, ...]] = tuple(
    kind.usage for kind in KINDS.values() if kind.by_build
)


@record
class Change:
    """What is added to a policy; a key or rule replaces one of the same name.

    `reasons` says by id why what the policy knows is revoked.  With another `name`, the policy
    states that it replaces the one of its old name.
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
    """A policy by which any of `signers` (id and PEM) vouches for every artifact, for `days`.

    Raises I027 where those are too many.
    """
    if not 0 < days <= MAX_DAYS:
        raise AotcError(
            "AOTC-I027",
            "a policy cannot be made for so long",
            where="--days",
            expected=f"1 to {MAX_DAYS} days",
            found=f"{days}"[:40],
        )
    listed = tuple(signers)
    need = Requirement(predicate="oms", signers=tuple(name for name, _ in listed))
    return TrustPolicy(
        schema="aotc.trust/1",
        name=name,
        sequence=1,
        expires=format_instant(datetime.now(UTC) + timedelta(days=days)),
        keys=tuple(PolicyKey(id=name, pem=pem, usage=BUILDER_USAGE) for name, pem in listed),
        rules=(Rule(name="default", match=Match(name="*"), require=(need,)),),
    )


def changed(policy: TrustPolicy, change: Change) -> TrustPolicy:
    """The next sequence of a policy; raises I027 for a reason about what it does not know.

    I027 too for an artifact that is named by less than its whole id.
    """
    _whole_ids("--revoke-artifact", change.revoked.artifacts)
    _whole_ids("--allow-rollback", change.rollback)
    keys = _merged(policy.keys, change.keys, "id")
    authorities = _merged(policy.authorities, change.authorities, "id")
    known = {each.id for each in (*keys, *authorities)}
    known |= {each.id for each in policy.identities}
    for unknown in change.reasons.keys() - known:
        raise AotcError(
            "AOTC-I027",
            "a reason is given for what is no id of this policy",
            where="--revoke-key",
            expected=", ".join(sorted(known)),
            found=unknown,
        )
    name = change.name or policy.name
    before = _union(policy.replaces, () if name == policy.name else (policy.name,))
    return replace(
        policy,
        name=name,
        replaces=tuple(each for each in before if each != name),
        sequence=policy.sequence + 1,
        expires=change.expires or policy.expires,
        keys=_revoked(keys, change.reasons),
        authorities=_revoked(authorities, change.reasons),
        identities=_revoked(policy.identities, change.reasons),
        rules=_merged(policy.rules, change.rules, "name"),
        revoked=Revoked(
            artifacts=_union(policy.revoked.artifacts, change.revoked.artifacts),
            keys=_union(policy.revoked.keys, change.revoked.keys),
        ),
        rollback=_union(policy.rollback, change.rollback),
    )


def _merged(old: tuple[T, ...], new: tuple[T, ...], by: str) -> tuple[T, ...]:
    found = {getattr(each, by): each for each in old}
    found.update({getattr(each, by): each for each in new})
    return tuple(found.values())


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))


def _revoked(holders: tuple[H, ...], reasons: Mapping[str, str]) -> tuple[H, ...]:
    return tuple(replace(each, revoked=reasons.get(each.id, each.revoked)) for each in holders)


def _whole_ids(option: str, ids: Iterable[str]) -> None:
    for each in ids:
        if len(each) != _ID_DIGITS or not set(each) <= set("0123456789abcdef"):
            raise AotcError(
                "AOTC-I027",
                "an artifact is named by its whole id",
                where=option,
                expected=f"the {_ID_DIGITS} digits of the sha256 of its aotc.json",
                found=each,
                fix="'aotc verify' and 'aotc inspect' show the id of an artifact.",
            )
