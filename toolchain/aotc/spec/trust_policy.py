"""Trust policies: who must sign what for which artifact; and the interface of signers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, Protocol, runtime_checkable

from aotc.base.records import field, record
from aotc.spec.attestation_kinds import KINDS, Usage
from aotc.spec.attestations import INSTANT, Instant, parse_instant
from aotc.spec.codec import Bounds, Pattern, Problem
from aotc.spec.payload import Finding, Sha256
from aotc.spec.trust_anchors import TrustedIdentity
from aotc.spec.versions import RELEASE

# Trust policies: who must sign what for which artifact. Schemas `aotc.trust/1`, `aotc.root/1`.
#
# A policy is a YAML file, signed by root keys. A host states its root keys in a file of its own,
# with the number of roots that must have signed and the name of the policy that the host takes.


POLICY_PREDICATE = "urn:aotc:trust-policy:v1"
# A century: a longer period is a mistake, and dates are limited.
MAX_DAYS = 36_500
WARN_DAYS = 14

KeyName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]
Release = Annotated[
    str,
    Pattern(rf"{RELEASE}|{INSTANT}"),
    "a version such as 1.4.0, or a time",
]


@record
class PolicyKey:
    """A key or a certificate authority of the policy, and what it may sign."""

    id: Annotated[KeyName, "its name in this policy only"]
    pem: Annotated[str, "public key on P-256 or P-384, or certificate of the authority"]
    usage: Annotated[tuple[Usage, ...], Bounds(1)]
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    revoked: Annotated[
        str | None, Bounds(1), "the reason, if it is revoked; its signatures do not count then"
    ] = None

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        return [
            *_period_problems(self, "valid_from", "valid_until"),
            *_duplicate_problems("usage", self.usage),
        ]


@record
class PolicyIdentity:
    """A keyless signer (sigstore), identified by an OIDC issuer."""

    id: Annotated[KeyName, "its name in this policy"]
    identity: Annotated[
        str, Bounds(1), "as in the certificate: an e-mail address or the URI of a workflow"
    ]
    issuer: Annotated[str, Bounds(1), "URL of the OIDC issuer"]
    trusted_root: Annotated[
        str, "sigstore trusted root (JSON text) of a private instance; empty: the public instance"
    ] = ""
    usage: Annotated[tuple[Usage, ...], Bounds(1)]
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    revoked: Annotated[str | None, Bounds(1), "the reason, if it is revoked"] = None

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = [
            *_period_problems(self, "valid_from", "valid_until"),
            *_duplicate_problems("usage", self.usage),
        ]
        if self.trusted_root and not self.trusted_root.lstrip().startswith("{"):
            found.append(Problem("trusted_root", "is not a trusted root in JSON"))
        return found


PolicySigner = PolicyKey | PolicyIdentity


@record
class Match:
    """The artifacts that a rule is for: patterns with `*`, `?` and `[...]`, case-sensitive."""

    name: Annotated[str, Bounds(1), "pattern of the artifact's name"]
    channel: Annotated[str, "pattern of the channel; an empty one matches no channel"] = "*"


_OF_ADDED: Final[Mapping[str, Usage]] = {"channel": "approval", "target": "qualification"}


@record
class Requirement:
    """One kind of attestation that is required, and who must sign it."""

    predicate: Usage
    signers: Annotated[
        tuple[str, ...], Bounds(1), "ids of keys, authorities or identities of this policy"
    ]
    threshold: Annotated[int, Bounds(1), "distinct public keys that must have signed"] = 1
    builders: Annotated[
        tuple[str, ...], "allowed builder ids of provenance, or of a reproduction; empty: any"
    ] = ()
    max_age: Annotated[int | None, Bounds(1, MAX_DAYS), "maximum age in days"] = None
    channel: Annotated[
        str | None, Bounds(1), "of an approval; None: the channel for which the artifact is loaded"
    ] = None
    target: Annotated[
        Literal["this", "any"] | None,
        "of a qualification: any host, or (this, None) a host like this one",
    ] = None
    outcome: Annotated[
        Literal["identical", "in-part", "same-answers"] | None,
        "of a reproduction, the least that suffices: the same bytes (None), the same but for what "
        "its host could not build, or the same answers",
    ] = None

    def problems(self) -> list[Problem]:
        """Rules that the types do not express: each field applies to its kind only."""
        found = _duplicate_problems("signers", self.signers)
        for name, wanted in (
            ("builders", ("provenance", "reproduction")),
            ("outcome", ("reproduction",)),
            *((name, (kind,)) for name, kind in _OF_ADDED.items()),
        ):
            if getattr(self, name) and self.predicate not in wanted:
                kinds = " and ".join(wanted)
                found.append(Problem(name, f"is for {kinds} only, not for {self.predicate}"))
        if self.max_age is not None and not KINDS[self.predicate].made_at:
            found.append(Problem("max_age", f"{self.predicate} does not say when it was made"))
        return found


@record
class Rule:
    """What is required of the artifacts that the rule matches."""

    name: KeyName
    match: Match
    require: Annotated[tuple[Requirement, ...], Bounds(1)]
    min_version: Release | None = None
    repositories: Annotated[
        tuple[str, ...],
        "patterns of HOST/REPOSITORY, where an artifact comes from a registry; empty: any",
    ] = ()

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        return [
            *_release_problems("min_version", self.min_version),
            *_duplicate_problems("repositories", self.repositories),
            *_repository_problems(self.repositories),
        ]


@record
class Revoked:
    """Artifacts and keys that are never accepted."""

    artifacts: Annotated[tuple[Sha256, ...], "artifact ids: sha256 of aotc.json"] = ()
    keys: Annotated[tuple[str, ...], "ids in this policy, or sha256 of a public key's PEM"] = ()


@record
class Limits:
    """The largest artifact that is accepted; None: only the limits of the format."""

    payload_bytes: Annotated[int | None, Bounds(1)] = None
    files: Annotated[int | None, Bounds(1), "number of files in the payload"] = None
    bundles: Annotated[int | None, Bounds(1), "number of attestations"] = None


@record
class TrustPolicy:
    """A trust policy.  Exactly one rule must match an artifact, or the artifact is refused."""

    schema: Annotated[Literal["aotc.trust/1"], "version of this schema"]
    name: KeyName
    sequence: Annotated[int, Bounds(1), "a later policy of this name has a higher one"]
    replaces: Annotated[
        tuple[KeyName, ...], "former names of this policy; its sequence continues theirs"
    ] = ()
    valid_from: Instant | None = None
    expires: Instant
    warn_days: Annotated[
        int, Bounds(0, MAX_DAYS), "days before it expires from which on a finding says so; 0: none"
    ] = WARN_DAYS
    keys: tuple[PolicyKey, ...] = ()
    authorities: Annotated[tuple[PolicyKey, ...], "certificate authorities"] = ()
    identities: Annotated[tuple[PolicyIdentity, ...], "keyless signers"] = ()
    rules: Annotated[tuple[Rule, ...], Bounds(1)]
    revoked: Revoked = Revoked()
    limits: Limits = Limits()
    min_versions: Annotated[Mapping[str, Release], "minimum releases by the artifact's name"] = (
        field(default_factory=dict)
    )
    rollback: Annotated[
        tuple[Sha256, ...], "artifact ids that are accepted although a later release was seen"
    ] = ()

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        known = {signer.id: signer for signer in self.signers()}
        found = _period_problems(self, "valid_from", "expires")
        found += _duplicate_problems("replaces", self.replaces)
        if self.name in self.replaces:
            found.append(Problem("replaces", f"{self.name!r} is the name of this policy"))
        found += _duplicate_problems("keys", [signer.id for signer in self.signers()], "id ")
        people = [f"{signer.identity} of {signer.issuer}" for signer in self.identities]
        found += _duplicate_problems("identities", people)
        found += _duplicate_problems("rules", [rule.name for rule in self.rules], "name ")
        for name, wanted in self.min_versions.items():
            found += _release_problems(f"min_versions.{name}", wanted)
        for key in self.revoked.keys:
            if key not in known and not re.fullmatch(r"[0-9a-f]{64}", key):
                found.append(Problem("revoked.keys", _unknown_key_text(key, known)))
        authorities = {authority.id for authority in self.authorities}
        for place, rule in enumerate(self.rules):
            for index, need in enumerate(rule.require):
                where = f"rules[{place}].require[{index}]"
                found += _signer_problems(need, known, authorities, where)
        return found

    def signers(self) -> tuple[PolicySigner, ...]:
        """The keys, authorities and identities of the policy."""
        return (*self.keys, *self.authorities, *self.identities)


@record
class RootKeys:
    """The root keys of a host, and the policy that they sign.

    The host takes the policy `policy` if at least `threshold` of the `keys` signed it.
    """

    schema: Annotated[Literal["aotc.root/1"], "version of this schema"]
    policy: Annotated[KeyName, "name of the only policy that is taken"]
    threshold: Annotated[int, Bounds(1), "number of distinct keys that must have signed a policy"]
    keys: Annotated[tuple[str, ...], Bounds(1), "public keys on P-256 or P-384, PEM"]

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        if self.threshold > len(self.keys):
            what = f"{self.threshold} of {len(self.keys)} keys can never be met"
            return [Problem("threshold", what)]
        return []


def _signer_problems(
    need: Requirement, known: Mapping[str, PolicySigner], authorities: set[str], where: str
) -> list[Problem]:
    found = []
    for signer in need.signers:
        key = known.get(signer)
        if key is None:
            found.append(Problem(f"{where}.signers", f"{signer!r} is not an id of this policy"))
        elif need.predicate not in key.usage:
            what = f"{signer!r} does not have the usage {need.predicate!r}"
            found.append(Problem(f"{where}.signers", what))
    # An authority may certify any number of keys.
    if need.threshold > len(need.signers) and authorities.isdisjoint(need.signers):
        what = f"{need.threshold} of {len(need.signers)} can never be met"
        found.append(Problem(f"{where}.threshold", what))
    return found


def _unknown_key_text(text: str, known: Iterable[str]) -> str:
    """What is wrong with a revoked key that is not known, with the id that is probably meant."""
    meant = next((id_ for id_ in known if id_.casefold() == text.strip().casefold()), None)
    if meant is not None:
        return f"{text!r} is not an id of this policy; {meant!r} is"
    digits = "a key's own id is 64 lowercase hexadecimal digits without anything else"
    return f"{text!r} is not an id of this policy; {digits}"


def _period_problems(signer: object, first: str, last: str) -> list[Problem]:
    """Times that do not exist, and an end that is not after the start."""
    found, read = [], []
    for name in (first, last):
        text = getattr(signer, name)
        try:
            read.append(parse_instant(text) if text is not None else None)
        except ValueError:
            found.append(Problem(name, f"{text} is not a valid date and time"))
    if not found and None not in read and read[0] >= read[1]:  # type: ignore[operator]
        found.append(Problem(last, f"is not after {first}"))
    return found


def _release_problems(path: str, text: str | None) -> list[Problem]:
    if text is not None and "T" in text:
        try:
            parse_instant(text)
        except ValueError:
            return [Problem(path, f"{text} is not a valid date and time")]
    return []


def _repository_problems(patterns: Iterable[str]) -> Iterable[Problem]:
    """Patterns that no repository matches: one is in lower case, without scheme, tag and digest."""
    for pattern in patterns:
        if (
            not re.fullmatch(r"[a-z0-9.:*?!\[\]-]+/[a-z0-9._/*?!\[\]-]+", pattern)
            or ":/" in pattern
        ):
            what = f"{pattern!r} is not like ghcr.io/team/*: in lower case, without scheme and tag"
            yield Problem("repositories", what)


def _duplicate_problems(path: str, values: Iterable[str], what: str = "") -> list[Problem]:
    counts = Counter(values)
    return [
        Problem(path, f"{what}{value!r} is listed {count} times")
        for value, count in counts.items()
        if count > 1
    ]


class Signer(Protocol):
    """A P-256 key that signs, wherever its private half is kept."""

    @property
    def public_pem(self) -> str:
        """The public half (SPKI, PEM)."""

    @property
    def key_id(self) -> str:
        """sha256 (hex) of `public_pem`."""

    @property
    def development(self) -> bool:
        """Whether it is the development key of this user."""

    @property
    def chain(self) -> tuple[str, ...]:
        """The certificate chain of the key (PEM), its own first; empty without certificates."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the user should know about how the key is kept."""

    def sign(self, message: bytes) -> bytes:
        """A DER-encoded ECDSA signature over the SHA-256 of `message`."""


@runtime_checkable
class Sealer(Protocol):
    """A signer of complete statements, with a new key for each (sigstore keyless)."""

    def tag(self) -> str:
        """16 hexadecimal digits that identify this signer."""

    def issuer(self) -> str:
        """The URL of the OIDC issuer that confirms its identity."""

    def anchors(self) -> tuple[TrustedIdentity, ...]:
        """Its possible names, one of which its signatures verify for."""

    def seal(self, payload: bytes) -> bytes:
        """A verified sigstore bundle (JSON) with the in-toto statement `payload`."""


@record
class SignedBy:
    """Who made a bundle: the id of the key, and the identity with its issuer, or empty."""

    key_id: str
    identity: str
    development_key: bool


@record
class SignerFile:
    """`signer.yaml`: a program that signs with a key that this process never sees."""

    schema: Literal["aotc.signer/1"]
    command: Annotated[
        tuple[str, ...],
        Bounds(1),
        "the program and its arguments, without a shell; it runs in the folder of this file, gets "
        "the bytes to sign on standard input, and writes the signature to standard output",
    ]
    public_key: Annotated[str, "the public key: a path relative to this file, or PEM text"]
    certificates: Annotated[
        str, "certificates of the key, its own first: a path, or PEM text; default: none"
    ] = ""
    format: Annotated[
        Literal["der", "raw"], "of the signature: DER, or r and s in 32 bytes each"
    ] = "der"
    timeout_seconds: Annotated[
        float, Bounds(1, 600), "time limit; the program is stopped after it"
    ] = 60.0

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        if not self.command[0]:
            found.append(Problem("command[0]", "is empty"))
        if any("\0" in word for word in self.command):
            found.append(Problem("command", "holds a NUL"))
        return found
