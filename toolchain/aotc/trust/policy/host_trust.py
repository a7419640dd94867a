"""Whom this host trusts: a set of keys, or a trust policy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.interruptions import uninterrupted
from aotc.base.records import field, record, replace
from aotc.spec.payload import Finding
from aotc.spec.target import Target
from aotc.spec.trust_anchors import Anchor, TrustedAuthority, TrustedIdentity, TrustedKey
from aotc.trust.development_key import resolve_trust
from aotc.trust.policy.roots import (
    Roots,
    host_roots,
    require_named_policy,
    require_root_signatures,
)

if TYPE_CHECKING:
    from aotc.spec.trust_policy import PolicySigner, TrustPolicy
    from aotc.trust.policy.document import PolicyFile
    from aotc.trust.policy.state import StateFile


# Whether the trust state is updated: "no" only compares, and "unsafe-none" accepts without it.
Remembering = Literal["yes", "no", "unsafe-none"]
EXPIRES_SOON: Final = "AOTC-G048"


@record
class AppliedPolicy:
    """A policy that is used, at the time `now`.

    `roots` are the key ids of the root keys that signed it.  `state` is what this user has seen; it
    is updated only if `remembers` is true.  With `follows_clock`, each artifact is verified for the
    time of its verification, else for the time `now`.
    """

    policy: TrustPolicy
    sha256: str
    roots: tuple[str, ...]
    now: datetime
    state: StateFile | None = None
    remembers: bool = True
    follows_clock: bool = False

    def signer_of(self, key: TrustedKey) -> PolicySigner | None:
        """The key, authority or identity of the policy by which `key` is trusted, or None."""
        for known in self.policy.keys:
            if known.pem == key.pem:
                return known
        issuers: dict[str, PolicySigner] = {item.id: item for item in self.policy.authorities}
        issuers.update((item.id, item) for item in self.policy.identities)
        return issuers.get(key.origin)

    def signer_name(self, key: TrustedKey) -> str:
        """The name by which signers are counted: an id of the policy, or the name in a certificate.

        Keyless signers have a new key each time, and an authority certifies many people.
        """
        signer = self.signer_of(key)
        if signer is None or signer in self.policy.authorities:
            # Two intermediate CAs of an authority may certify the same person.
            name = key.subject or key.certificate
            return f"{key.origin}: {name}" if name else key.pem
        return signer.id


@record
class Trust:
    """The trusted keys, authorities and identities; with a policy, those that it knows.

    It is not iterable on purpose, since keys without their policy would be trusted too much.
    `channel` is the channel for which an artifact is loaded; None: that of its approvals.  `target`
    is the host that it is for; None: this host.  If `rules` is false, only the keys of a policy are
    used, with their usage, validity and revocation, and not its rules.
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
        """The same at the current time, if its policy follows the clock.

        A finding says if the policy expires soon.  Raises AOTC-G020 if it is not valid at that
        time.
        """
        if self.policy is None or not self.policy.follows_clock:
            return self
        now = datetime.now(UTC)
        policy = self.policy.policy
        _require_period(policy, now, policy.name)
        others = tuple(finding for finding in self.findings if finding.code != EXPIRES_SOON)
        return replace(
            self,
            policy=replace(self.policy, now=now),
            findings=(*others, *expiry_findings(policy, now)),
        )

    @classmethod
    def of(cls, trust: Trust | Iterable[Anchor]) -> Trust:
        """`trust` itself, or anchors as trust without a policy."""
        if isinstance(trust, Trust):
            return trust
        listed = tuple(trust)
        return cls(
            keys=tuple(item for item in listed if isinstance(item, TrustedKey)),
            authorities=tuple(item for item in listed if isinstance(item, TrustedAuthority)),
            identities=tuple(item for item in listed if isinstance(item, TrustedIdentity)),
        )

    def names_of(self, key: TrustedKey) -> str:
        """The key's id in the policy and the name in its certificate; empty if it has neither."""
        signer = self.policy.signer_of(key) if self.policy is not None else None
        names = (signer.id if signer is not None else "", key.subject or key.certificate)
        return ", ".join(name for name in names if name)

    def anchors(self) -> tuple[Anchor, ...]:
        """The keys, authorities and identities."""
        return (*self.keys, *self.authorities, *self.identities)


@uninterrupted
def resolve(
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    *,
    channel: str | None = None,
    target: Target | None = None,
    remember: bool = True,
    unsafe_no_trust_state: bool = False,
) -> Trust:
    """The trust in a file `trust` (a policy or a list of keys), in a file `key`, or the default.

    A host with root keys takes only a policy that enough of them signed: `trust`, or trust.yaml
    next to the file of root keys.  With `remember`, the sequence of the policy is remembered.  With
    `unsafe_no_trust_state` it is only compared with the trust state, if that can be read, and a
    finding says that older policies may be taken later.  A `Trust` is returned as it is, but for
    another `channel` or `target` if these are given.

    Raises AOTC-I001 and I023 (a file or key is unusable), G013 (a list of keys is), G019 to G022
    and G042 (the policy is not taken), G035, G036 and G041 (the trust state or the clock), and I027
    for a channel without a policy or a key in addition to one.
    """
    if isinstance(trust, Trust):
        found = _with_scope(trust, key, channel, target)
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
        path = Path(trust) if trust is not None else _default_policy(roots)
        return _resolve_policy(path, roots, channel, target, remembering)
    if trust is not None:
        from aotc.trust.policy.document import is_policy, read_bytes

        path = Path(trust)
        data = read_bytes(path, "trust file")
        if is_policy(path, data):
            if key is not None:
                raise AotcError(
                    "AOTC-I027",
                    "a policy and a key cannot be given together",
                    where="--key",
                    fix="Put the key into the policy.",
                )
            return _resolve_policy(path, None, channel, target, remembering, data=data)
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
    """A policy at the time `now`; raises AOTC-G020 if that is outside its period of validity."""
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
    """Trust in the keys, authorities and identities of a policy, by its rules."""
    policy = applied.policy
    return Trust(
        keys=tuple(TrustedKey(pem=key.pem, origin=key.id) for key in policy.keys),
        authorities=tuple(
            TrustedAuthority(pem=item.pem, origin=item.id) for item in policy.authorities
        ),
        identities=tuple(
            TrustedIdentity(
                identity=item.identity,
                issuer=item.issuer,
                origin=item.id,
                trusted_root=item.trusted_root,
            )
            for item in policy.identities
        ),
        policy=applied,
        channel=channel,
        target=target,
    )


def _resolve_policy(
    path: Path,
    roots: Roots | None,
    channel: str | None,
    target: Target | None,
    remembering: Remembering,
    *,
    data: bytes | None = None,
) -> Trust:
    from aotc.trust.policy import document
    from aotc.trust.policy.state import (
        UNSIGNED,
        SeenPolicy,
        check_clock,
        check_policy,
        state_to_compare,
        user_state,
    )

    if data is None:
        data = document.read_bytes(path, "trust policy")
    if roots is not None and not document.is_policy(path, data):
        raise _not_a_policy(roots, f"the list of keys {path}")
    file = document.parse_policy(data, path)
    policy, findings = file.policy, list(document.unmatched_revocations(file))
    if roots is None:
        signers: tuple[str, ...] = ()
        what = "this host has no root keys: the trust policy is used without a signature"
        findings.insert(0, Finding(code="AOTC-G021", what=what, where=str(path)))
    else:
        signers = require_root_signatures(file, roots.record)
        require_named_policy(file, roots)
    now = datetime.now(UTC)
    if remembering == "unsafe-none":
        state = state_to_compare()
        findings.append(_nothing_remembered(state))
    else:
        state = user_state()
    applied = apply_policy(
        file, now, roots=signers, state=state, remembers=remembering == "yes", follows_clock=True
    )
    # An unsigned policy must not replace a signed one.
    name = policy.name if roots is not None else f"{UNSIGNED}{policy.name}"
    replaces = policy.replaces if roots is not None else ()
    seen = SeenPolicy(sequence=policy.sequence, sha256=file.sha256)
    exact = roots is not None
    if state is not None and applied.remembers:
        state.note_policy(name, seen, now, exact=exact, replaces=replaces)
    elif state is not None:
        known = state.read()
        check_clock(known, now)
        check_policy(known, (name, *replaces), seen, exact=exact)
    found = trust_in_policy(applied, channel=channel, target=target)
    return replace(found, findings=(*findings, *expiry_findings(policy, now)))


def _nothing_remembered(state: StateFile | None) -> Finding:
    what = "nothing is remembered, so an older policy or release may be accepted later"
    if state is None:
        what += "; nor is anything compared: there is no readable trust state"
    return Finding(code="AOTC-G045", what=what, where=str(state.path) if state else "")


def expiry_findings(policy: TrustPolicy, now: datetime) -> tuple[Finding, ...]:
    """AOTC-G048 if a policy expires within its warning period."""
    from aotc.spec.attestations import parse_instant

    left = parse_instant(policy.expires) - now
    if left >= timedelta(days=policy.warn_days):
        return ()
    soon = f"in {left.days} days" if left.days > 1 else "within two days"
    what = f"the policy expires {soon}, at {policy.expires}: nothing is accepted by it from then on"
    return (Finding(code=EXPIRES_SOON, what=what, where=f"policy {policy.name}"),)


def _require_period(policy: TrustPolicy, now: datetime, where: str) -> None:
    from aotc.spec.attestations import format_instant, parse_instant

    if now >= parse_instant(policy.expires):
        expected = f"before {policy.expires}"
    elif policy.valid_from is not None and now < parse_instant(policy.valid_from):
        expected = f"from {policy.valid_from}"
    else:
        return
    raise AotcError(
        "AOTC-G020",
        "the trust policy is outside its period of validity",
        where=where,
        expected=expected,
        found=format_instant(now),
    )


def _with_scope(
    trust: Trust, key: str | Path | None, channel: str | None, target: Target | None
) -> Trust:
    if key is not None:
        raise AotcError(
            "AOTC-I027",
            "a key cannot be given in addition to a Trust",
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
        "a channel can only be given with a trust policy",
        where="--channel",
        fix="Give the policy with --trust.",
    )


def _default_policy(roots: Roots) -> Path:
    """The default policy of a host with root keys; raises AOTC-I001 if it does not exist."""
    path = roots.policy_path
    if not os.path.lexists(path):
        raise AotcError(
            "AOTC-I001",
            f"this host has root keys ({roots.path}), but no trust policy next to them",
            where=str(path),
            fix="Give a policy that the root keys signed with --trust, or put it there.",
        )
    return path


def _not_a_policy(roots: Roots, found: str) -> AotcError:
    return AotcError(
        "AOTC-G021",
        "this host has root keys, so it takes only a policy that they signed",
        where=str(roots.path),
        expected=f"a trust policy signed by {roots.record.threshold} root keys",
        found=found,
        fix="Give only such a policy, with --trust; 'aotc trust sign' signs it.",
    )
