"""Who may vouch for an artifact on this host: keys by themselves, or a policy about them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aotc.contract.finding import Finding
from aotc.contract.target import Target
from aotc.contract.trust.anchors import Anchor, TrustedAuthority, TrustedIdentity, TrustedKey
from aotc.errors import AotcError
from aotc.records import field, record, replace
from aotc.signing.keys.development import resolve_trust
from aotc.verification.policy.roots import Roots, host_roots, require_root_signatures

if TYPE_CHECKING:
    from aotc.contract.trust.trust_policy import PolicySigner, TrustPolicy
    from aotc.verification.policy.policy_document import PolicyFile
    from aotc.verification.policy.state import StateFile


# "no" looks and adds nothing; "unsafe-none" takes what it judges, and would not know it again.
Remembering = Literal["yes", "no", "unsafe-none"]


@record
class AppliedPolicy:
    """A policy that was taken, for the moment `now`.

    `roots` are key ids of those that signed it; `state` is what this user has seen, which
    nothing is added to unless it `remembers`.  With `moves`, each artifact is judged for the
    moment at which it is looked at, and else for the one that was stated.
    """

    policy: TrustPolicy
    sha256: str
    roots: tuple[str, ...]
    now: datetime
    state: StateFile | None = None
    remembers: bool = True
    follows_clock: bool = False

    def signer_of(self, key: TrustedKey) -> PolicySigner | None:
        """What the policy says of the key that signed, or of who vouched for that key."""
        for each in self.policy.keys:
            if each.pem == key.pem:
                return each
        vouching: dict[str, PolicySigner] = {each.id: each for each in self.policy.authorities}
        vouching.update((each.id, each) for each in self.policy.identities)
        return vouching.get(key.origin)

    def signer_name(self, key: TrustedKey) -> str:
        """Who signed, for counting: a name of the policy, or of the certificate of an authority.

        Keyless signers have another key each time, and an authority certifies many people.
        """
        holder = self.signer_of(key)
        if holder is None or holder in self.policy.authorities:
            # Two intermediates of one authority may certify one person twice.
            name = key.subject or key.certificate
            return f"{key.origin}: {name}" if name else key.pem
        return holder.id


@record
class Trust:
    """Keys, authorities and identities that may vouch; with a policy, all that it knows.

    Deliberately no iterable: who takes the keys out of it leaves the policy behind.
    `channel` is what the artifact is to be loaded for, None where its approvals say so;
    `target` describes the host that it is for, None for this one.  Without `rules`, of a policy
    only the keys count, each with its usage, validity and revocation.
    """

    keys: tuple[TrustedKey, ...] = ()
    authorities: tuple[TrustedAuthority, ...] = ()
    identities: tuple[TrustedIdentity, ...] = ()
    policy: AppliedPolicy | None = None
    channel: str | None = None
    target: Target | None = None
    rules: bool = True
    findings: tuple[Finding, ...] = field(default=())

    def at_present(self) -> Trust:
        """The same for this moment, where its policy moves; raises G020 where that has ended."""
        if self.policy is None or not self.policy.follows_clock:
            return self
        now = datetime.now(UTC)
        _require_period(self.policy.policy, now, self.policy.policy.name)
        return replace(self, policy=replace(self.policy, now=now))

    @classmethod
    def of(cls, trust: Trust | Iterable[Anchor]) -> Trust:
        """Plain keys and authorities as trust without a policy."""
        if isinstance(trust, Trust):
            return trust
        listed = tuple(trust)
        return cls(
            keys=tuple(each for each in listed if isinstance(each, TrustedKey)),
            authorities=tuple(each for each in listed if isinstance(each, TrustedAuthority)),
            identities=tuple(each for each in listed if isinstance(each, TrustedIdentity)),
        )

    def names_of(self, key: TrustedKey) -> str:
        """A key's id in the policy, and what its certificate names; empty: neither."""
        holder = self.policy.signer_of(key) if self.policy is not None else None
        names = (holder.id if holder is not None else "", key.subject or key.certificate)
        return ", ".join(name for name in names if name)

    def anchors(self) -> tuple[Anchor, ...]:
        """Keys, authorities and identities in one."""
        return (*self.keys, *self.authorities, *self.identities)


def resolve(
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    *,
    channel: str | None = None,
    target: Target | None = None,
    remember: bool = True,
    unsafe_no_trust_state: bool = False,
) -> Trust:
    """Whom to trust: a policy or list of keys in the file `trust`, the key in `key`, or default.

    Where the host has root keys, only a policy that enough of them signed is taken: `trust`, or
    trust.yaml beside the file of root keys.  With `remember`, its sequence is noted, unless
    `unsafe_no_trust_state`: then what this user has seen is compared with where it can be read, and
    nothing is added, so that what is older may be taken later; a finding says so.
    What was resolved before is taken as it is, for another channel or target where one is given.
    Raises I001, I023, G013, G019 to G022, G035, G036, G041 and G042; I027 for a channel without a
    policy, and for a key beside one.
    """
    if isinstance(trust, Trust):
        found = _narrowed(trust, key, channel, target)
        if unsafe_no_trust_state and found.policy is not None:
            found = replace(found, policy=replace(found.policy, remembers=False))
        return found
    remembering: Remembering = "yes" if remember else "no"
    if unsafe_no_trust_state:
        remembering = "unsafe-none"
    roots = host_roots()
    if roots is not None:
        if key is not None:
            raise _not_a_policy(roots, f"the key {key}")
        path = Path(trust) if trust is not None else _policy_beside(roots)
        return _by_policy(path, roots, channel, target, remembering)
    if trust is not None:
        from aotc.verification.policy.policy_document import is_policy, read_bytes

        path = Path(trust)
        data = read_bytes(path, "trust file")
        if is_policy(path, data):
            if key is not None:
                raise AotcError(
                    "AOTC-I027",
                    "a policy and a key beside it cannot be given",
                    where="--key",
                    fix="Put the key into the policy.",
                )
            return _by_policy(path, None, channel, target, remembering, data=data)
    if channel is not None:
        raise _channel_without_policy()
    return replace(Trust.of(resolve_trust(trust, key)), target=target)


def apply_policy(
    file: PolicyFile,
    now: datetime,
    *,
    roots: tuple[str, ...] = (),
    state: StateFile | None = None,
    remembers: bool = True,
    follows_clock: bool = False,
) -> AppliedPolicy:
    """A policy for the moment `now`; raises G020 where it is outside of its period."""
    _require_period(file.policy, now, str(file.path))
    return AppliedPolicy(
        policy=file.policy,
        sha256=file.sha256,
        roots=roots,
        now=now,
        state=state,
        remembers=remembers,
        follows_clock=follows_clock,
    )


def trust_in_policy(
    applied: AppliedPolicy, *, channel: str | None = None, target: Target | None = None
) -> Trust:
    """Trust in what a policy knows."""
    policy = applied.policy
    return Trust(
        keys=tuple(TrustedKey(pem=each.pem, origin=each.id) for each in policy.keys),
        authorities=tuple(
            TrustedAuthority(pem=each.pem, origin=each.id) for each in policy.authorities
        ),
        identities=tuple(
            TrustedIdentity(
                identity=each.identity,
                issuer=each.issuer,
                origin=each.id,
                trusted_root=each.trusted_root,
            )
            for each in policy.identities
        ),
        policy=applied,
        channel=channel,
        target=target,
    )


def _by_policy(
    path: Path,
    roots: Roots | None,
    channel: str | None,
    target: Target | None,
    remembering: Remembering,
    *,
    data: bytes | None = None,
) -> Trust:
    from aotc.verification.policy.policy_document import is_policy, parse_policy, read_bytes
    from aotc.verification.policy.revocations import unmatched_revocations
    from aotc.verification.policy.roots import require_named_policy
    from aotc.verification.policy.state import UNSIGNED, SeenPolicy, check_clock, check_policy

    if data is None:
        data = read_bytes(path, "trust policy")
    if roots is not None and not is_policy(path, data):
        raise _not_a_policy(roots, f"the list of keys {path}")
    file = parse_policy(data, path)
    policy, findings = file.policy, list(unmatched_revocations(file))
    if roots is None:
        signers: tuple[str, ...] = ()
        what = "this host has no root keys: the trust policy is taken as it is, unsigned"
        findings.insert(0, Finding(code="AOTC-G021", what=what, where=str(path)))
    else:
        signers = require_root_signatures(file, roots.record)
        findings += require_named_policy(file, roots)
    now = datetime.now(UTC)
    state = _state(remembering)
    if remembering == "unsafe-none":
        findings.append(_nothing_remembered(state))
    applied = apply_policy(
        file, now, roots=signers, state=state, remembers=remembering == "yes", follows_clock=True
    )
    # A policy that nobody signed cannot push one aside that was.
    name = policy.name if roots is not None else f"{UNSIGNED}{policy.name}"
    replaces = policy.replaces if roots is not None else ()
    seen = SeenPolicy(sequence=policy.sequence, sha256=file.sha256)
    exact = roots is not None
    first = roots is not None and roots.record.policy is None
    if state is not None and applied.remembers:
        state.note_policy(name, seen, now, exact=exact, replaces=replaces, first=first)
    elif state is not None:
        known = state.read()
        check_clock(known, now)
        check_policy(known, (name, *replaces), seen, exact=exact, first=first)
    found = trust_in_policy(applied, channel=channel, target=target)
    return replace(found, findings=tuple(findings))


def _state(remembering: Remembering) -> StateFile | None:
    from aotc.verification.policy.state import state_to_compare, user_state

    return state_to_compare() if remembering == "unsafe-none" else user_state()


def _nothing_remembered(state: StateFile | None) -> Finding:
    what = "nothing is remembered, so that an older policy or release may be taken later"
    if state is None:
        what += "; nor is anything compared: no trust state can be read"
    return Finding(code="AOTC-G045", what=what, where=str(state.path) if state else "")


def _require_period(policy: TrustPolicy, now: datetime, where: str) -> None:
    from aotc.contract.trust.attestations import parse_instant

    if now >= parse_instant(policy.expires):
        raise _untimely(where, f"before {policy.expires}", now)
    if policy.valid_from is not None and now < parse_instant(policy.valid_from):
        raise _untimely(where, f"from {policy.valid_from}", now)


def _untimely(where: str, expected: str, now: datetime) -> AotcError:
    from aotc.contract.trust.attestations import format_instant

    return AotcError(
        "AOTC-G020",
        "the trust policy is outside of its period",
        where=where,
        expected=expected,
        found=format_instant(now),
    )


def _narrowed(
    trust: Trust, key: str | Path | None, channel: str | None, target: Target | None
) -> Trust:
    if key is not None:
        raise AotcError(
            "AOTC-I027",
            "a key beside what is trusted already cannot be given",
            where="key",
            fix="Put the key into the policy, or into the list of keys.",
        )
    if channel is not None and trust.policy is None:
        raise _channel_without_policy()
    return replace(
        trust,
        channel=trust.channel if channel is None else channel,
        target=trust.target if target is None else target,
    )


def _channel_without_policy() -> AotcError:
    return AotcError(
        "AOTC-I027",
        "a channel says something only to a trust policy",
        where="--channel",
        fix="Give the policy with --trust.",
    )


def _policy_beside(roots: Roots) -> Path:
    """The policy of a host with root keys, where none is named; raises I001 where there is none."""
    path = roots.policy_path
    if not os.path.lexists(path):
        raise AotcError(
            "AOTC-I001",
            f"this host has root keys ({roots.path}), and no trust policy beside them",
            where=str(path),
            fix="Give a policy that the roots signed with --trust, or put it there.",
        )
    return path


def _not_a_policy(roots: Roots, found: str) -> AotcError:
    return AotcError(
        "AOTC-G021",
        "this host has root keys, so only a policy that they signed is taken",
        where=str(roots.path),
        expected=f"a trust policy signed by {roots.record.threshold} root keys",
        found=found,
        fix="Give one with --trust, and nothing beside it; 'aotc trust sign' signs it.",
    )
