"""Trust policies: who may vouch for which artifact, and with what. `aotc.trust/1`, `aotc.root/2`.

A policy is a YAML file.  It is signed by root keys, which a host states in a file of its own; the
number of roots that must have signed stands there, and the name of the policy that the host takes,
and neither in the policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from aotc.contract.attestation_kinds import KINDS, Usage
from aotc.contract.codec.parsing import Bounds, Pattern, Problem
from aotc.contract.manifest.payload_files import Sha256
from aotc.contract.trust.attestations import INSTANT, Instant, parse_instant
from aotc.contract.versions import RELEASE
from aotc.records import field, record

POLICY_PREDICATE = "urn:aotc:trust-policy:v1"
# A century: calendars end, and a longer period is a slip.
MAX_DAYS = 36_500

KeyName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]
Release = Annotated[
    str,
    Pattern(rf"{RELEASE}|{INSTANT}"),
    "a version such as 1.4.0, or a moment",
]


@record
class PolicyKey:
    """A key or a certificate authority that the policy knows, and what it may sign."""

    id: Annotated[KeyName, "its name in this policy; says nothing to a bundle"]
    pem: Annotated[str, "public key on P-256, or the certificate of the authority"]
    usage: Annotated[tuple[Usage, ...], Bounds(1)]
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    revoked: Annotated[
        str | None, Bounds(1), "the reason, where it is revoked: it then counts for nothing"
    ] = None

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        return [
            *_moments(self, "valid_from", "valid_until"),
            *_doubles("usage", self.usage),
        ]


@record
class PolicyIdentity:
    """Somebody who signs without a kept key (sigstore keyless), by what an OIDC issuer says."""

    id: Annotated[KeyName, "its name in this policy"]
    identity: Annotated[str, Bounds(1), "as the certificate says: an address or a workflow's URI"]
    issuer: Annotated[str, Bounds(1), "URL of the OIDC issuer"]
    trusted_root: Annotated[
        str, "sigstore trusted root (JSON text) of a private instance; the public one's if empty"
    ] = ""
    usage: Annotated[tuple[Usage, ...], Bounds(1)]
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    revoked: Annotated[str | None, Bounds(1), "the reason, where it is revoked"] = None

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        found = [
            *_moments(self, "valid_from", "valid_until"),
            *_doubles("usage", self.usage),
        ]
        if self.trusted_root and not self.trusted_root.lstrip().startswith("{"):
            found.append(Problem("trusted_root", "is not the text of a trusted root in JSON"))
        return found


Holder = PolicyKey | PolicyIdentity


@record
class Match:
    """Which artifacts a rule is for; `*`, `?` and `[...]` as in file names, case counts."""

    name: Annotated[str, Bounds(1), "pattern of the artifact's name"]
    channel: Annotated[str, "pattern of the channel; an empty one matches no channel"] = "*"


@record
class Requirement:
    """One kind of attestation that must be there, by whom."""

    predicate: Usage
    signers: Annotated[
        tuple[str, ...], Bounds(1), "ids of keys, authorities or identities of this policy"
    ]
    threshold: Annotated[int, Bounds(1), "distinct public keys that must have signed"] = 1
    builders: Annotated[tuple[str, ...], "allowed builder ids of provenance; none: any"] = ()
    max_age: Annotated[int | None, Bounds(1, MAX_DAYS), "days since it was made"] = None
    channel: Annotated[
        str | None, Bounds(1), "of an approval; None: the channel that the artifact is loaded for"
    ] = None
    target: Annotated[
        Literal["this", "any"] | None, "of a qualification: a host like this one (None), or any"
    ] = None

    def problems(self) -> list[Problem]:
        """Fields that say nothing of this predicate."""
        found = _doubles("signers", self.signers)
        for name, wanted in (
            ("builders", "provenance"),
            ("channel", "approval"),
            ("target", "qualification"),
        ):
            if getattr(self, name) and self.predicate != wanted:
                found.append(Problem(name, f"is for {wanted} only, not for {self.predicate}"))
        if self.max_age is not None and not KINDS[self.predicate].made_at:
            found.append(Problem("max_age", f"{self.predicate} does not say when it was made"))
        return found


@record
class Rule:
    """What is required of the artifacts that it matches."""

    name: KeyName
    match: Match
    require: Annotated[tuple[Requirement, ...], Bounds(1)]
    min_version: Release | None = None

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        return _release("min_version", self.min_version)


@record
class Revoked:
    """What counts for nothing, whoever vouches for it."""

    artifacts: Annotated[tuple[Sha256, ...], "artifact ids: sha256 of aotc.json"] = ()
    keys: Annotated[tuple[str, ...], "ids in this policy, or sha256 of a public key's PEM"] = ()


@record
class Limits:
    """The largest artifact that is taken; None: the limits of the format alone."""

    payload_bytes: Annotated[int | None, Bounds(1)] = None
    files: Annotated[int | None, Bounds(1), "in the payload"] = None
    bundles: Annotated[int | None, Bounds(1), "attestations"] = None


@record
class TrustPolicy:
    """A trust policy.  Exactly one rule must match an artifact; what none matches is denied."""

    schema: Annotated[Literal["aotc.trust/1"], "version of this schema"]
    name: KeyName
    sequence: Annotated[int, Bounds(1), "a later policy of this name has a higher one"]
    replaces: Annotated[
        tuple[KeyName, ...], "names that this policy had before; its sequence goes on from theirs"
    ] = ()
    valid_from: Instant | None = None
    expires: Instant
    keys: tuple[PolicyKey, ...] = ()
    authorities: Annotated[tuple[PolicyKey, ...], "certificate authorities"] = ()
    identities: Annotated[tuple[PolicyIdentity, ...], "of keyless signers"] = ()
    rules: Annotated[tuple[Rule, ...], Bounds(1)]
    revoked: Revoked = Revoked()
    limits: Limits = Limits()
    min_versions: Annotated[Mapping[str, Release], "by the artifact's name"] = field(
        default_factory=dict
    )
    rollback: Annotated[
        tuple[Sha256, ...], "artifact ids that are taken though a later release was seen"
    ] = ()

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        known = {each.id: each for each in self.holders()}
        found = _moments(self, "valid_from", "expires")
        found += _doubles("replaces", self.replaces)
        if self.name in self.replaces:
            found.append(Problem("replaces", f"{self.name!r} is the name of this policy"))
        found += _doubles("keys", [each.id for each in self.holders()], "id ")
        people = [f"{each.identity} of {each.issuer}" for each in self.identities]
        found += _doubles("identities", people)
        found += _doubles("rules", [each.name for each in self.rules], "name ")
        for name, wanted in self.min_versions.items():
            found += _release(f"min_versions.{name}", wanted)
        for each in self.revoked.keys:
            if each not in known and not re.fullmatch(r"[0-9a-f]{64}", each):
                found.append(Problem("revoked.keys", _no_key(each, known)))
        authorities = {each.id for each in self.authorities}
        for place, rule in enumerate(self.rules):
            for index, need in enumerate(rule.require):
                where = f"rules[{place}].require[{index}]"
                found += _signers(need, known, authorities, where)
        return found

    def holders(self) -> tuple[Holder, ...]:
        """Keys, authorities and identities in one."""
        return (*self.keys, *self.authorities, *self.identities)


@record
class RootKeys:
    """The roots of a host: whose signatures make which policy, and how many of them."""

    schema: Annotated[Literal["aotc.root/2", "aotc.root/1"], "version of this schema; 1 is read"]
    policy: Annotated[
        KeyName | None, "name of the one policy that is taken; of aotc.root/2, and always there"
    ] = None
    threshold: Annotated[int, Bounds(1), "distinct keys that must have signed a policy"]
    keys: Annotated[tuple[str, ...], Bounds(1), "public keys on P-256, PEM"]

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        found = []
        if self.schema == "aotc.root/2" and self.policy is None:
            found.append(Problem("policy", "is missing"))
        if self.schema == "aotc.root/1" and self.policy is not None:
            found.append(Problem("policy", "is not known to aotc.root/1; state aotc.root/2"))
        if self.threshold > len(self.keys):
            never = f"{self.threshold} of {len(self.keys)} keys is never met"
            found.append(Problem("threshold", never))
        return found


def _signers(
    need: Requirement, known: Mapping[str, Holder], authorities: set[str], where: str
) -> list[Problem]:
    found = []
    for signer in need.signers:
        key = known.get(signer)
        if key is None:
            found.append(Problem(f"{where}.signers", f"{signer!r} is no id of this policy"))
        elif need.predicate not in key.usage:
            found.append(Problem(f"{where}.signers", f"{signer!r} has no usage {need.predicate!r}"))
    # An authority may certify any number of keys.
    if need.threshold > len(need.signers) and authorities.isdisjoint(need.signers):
        found.append(
            Problem(f"{where}.threshold", f"{need.threshold} of {len(need.signers)} is never met")
        )
    return found


def _no_key(text: str, known: Iterable[str]) -> str:
    """Why a revoked key is none, and the one that is meant where its name has other letters."""
    meant = next((each for each in known if each.casefold() == text.strip().casefold()), None)
    if meant is not None:
        return f"{text!r} is no id of this policy; {meant!r} is"
    digits = "a key's own id is 64 small hexadecimal digits, and nothing between or before them"
    return f"{text!r} is no id of this policy; {digits}"


def _moments(holder: object, first: str, last: str) -> list[Problem]:
    """Dates that no calendar has, and an end that is not after the start."""
    found, read = [], []
    for name in (first, last):
        text = getattr(holder, name)
        try:
            read.append(parse_instant(text) if text is not None else None)
        except ValueError:
            found.append(Problem(name, f"{text} is no date and time"))
    if not found and None not in read and read[0] >= read[1]:  # type: ignore[operator]
        found.append(Problem(last, f"is not after {first}"))
    return found


def _release(path: str, text: str | None) -> list[Problem]:
    if text is not None and "T" in text:
        try:
            parse_instant(text)
        except ValueError:
            return [Problem(path, f"{text} is no date and time")]
    return []


def _doubles(path: str, values: Iterable[str], what: str = "") -> list[Problem]:
    counts = Counter(values)
    return [
        Problem(path, f"{what}{value!r} is there {count} times")
        for value, count in counts.items()
        if count > 1
    ]
