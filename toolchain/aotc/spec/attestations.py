"""Attestations that are added to a built artifact: the predicates of approval, qualification."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Protocol

from aotc.base.records import field, record, replace
from aotc.spec.codec import Bounds, Pattern, Problem, encode
from aotc.spec.json import canonical_sha256
from aotc.spec.payload import Finding, Sha256
from aotc.spec.reports import Verdict
from aotc.spec.target import Target

BUILD_TYPE: Final = "urn:aotc:build:v1"
MERGE_TYPE: Final = "urn:aotc:merge:v1"
LOCAL_BUILDER: Final = "urn:aotc:builder:local"

# File names hold it.
CHANNEL: Final = r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?"
INSTANT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"

Channel = Annotated[str, Pattern(CHANNEL)]
Instant = Annotated[str, Pattern(INSTANT), "UTC, ISO 8601"]


@record
class ArtifactName:
    """Identifies an artifact: the model's name, and the sha256 of aotc.json."""

    name: str
    id: Sha256


class Predicate(Protocol):
    """The predicate of a statement that is added to an artifact."""

    @property
    def artifact(self) -> ArtifactName:
        """The artifact that the statement is about."""


@record
class Approval:
    """Predicate `urn:aotc:approval:v1`: the artifact may be used in a channel until it expires."""

    channel: Annotated[Channel, "such as prod or staging"]
    expires: Annotated[Instant, "not valid from this time on"]
    issued_at: Instant
    artifact: ArtifactName
    note: str = ""

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        for name in ("expires", "issued_at"):
            try:
                parse_instant(getattr(self, name))
            except ValueError:
                found.append(Problem(name, "is not a valid time"))
        return found


@record
class Latency:
    """The time of successive calls with one fixture, in seconds."""

    fixture: str
    variant: Annotated[str, "variant that ran the calls"]
    sizes: Annotated[Mapping[str, int], "of the dims"] = field(default_factory=dict)
    runs: Annotated[int, Bounds(1)]
    median_seconds: float
    lower_seconds: Annotated[float, "first quartile"]
    upper_seconds: Annotated[float, "third quartile"]


@record
class Qualification:
    """Predicate `urn:aotc:qualification:v1`: the result of an acceptance test on one target."""

    target: Annotated[
        Target, "host of the test, as 'aotc target probe' describes it, without names"
    ]
    target_sha256: Annotated[Sha256, "of the target as canonical JSON, without names"]
    artifact: ArtifactName
    variant: Annotated[str, "variant of the profile, with all of its buckets"]
    variants: Annotated[tuple[str, ...], Bounds(1), "variants that were loaded and accepted"]
    verdict: Annotated[Verdict, "on the target"]
    load_seconds: Annotated[float, "sessions, placement and warm-up"]
    verify_seconds: Annotated[float, "signature and digests"]
    latency: Annotated[tuple[Latency, ...], "by fixture"]
    peak_memory_bytes: Annotated[int, "resident memory of the process that loaded and ran it"]
    fixtures: Annotated[int, Bounds(1), "number of fixtures that matched the golden outputs"]
    findings: tuple[Finding, ...] = ()
    toolchain: Annotated[str, "version of aotc that ran the test"]
    issued_at: Instant


@record
class AttestReport:
    """`aotc sign --json` and `aotc attest --json`: the attestation that was added."""

    schema: Literal["aotc.attest/1"] = "aotc.attest/1"
    artifact: str
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    path: Annotated[str, "file that was written, or the reference of what a registry got"]
    predicate_type: str
    key_id: str
    identity: Annotated[str, "of a keyless signer: IDENTITY by ISSUER; empty for a key"] = ""
    development_key: bool
    replaced: Annotated[bool, "a file of that name was replaced"] = False
    approval: Approval | None = None
    qualification: Qualification | None = None
    findings: Annotated[tuple[Finding, ...], "about the key that signed"] = ()


def target_digest(target: Target) -> str:
    """sha256 (hex) of a target as canonical JSON, without its name, description and extra fields.

    The digests of libraries are left out, and Python's ABI, because they are known only if a
    variant needs them.
    """
    plugins = tuple(replace(plugin, sha256=None) for plugin in target.plugins)
    plain = replace(target, name="host", description="", extra={}, plugins=plugins)
    return canonical_sha256(encode(replace(plain, python=None, custom_ops={})))


def format_instant(moment: datetime.datetime) -> Instant:
    """A time as predicates state it: UTC, ISO 8601, in whole seconds."""
    # strftime may write years before 1000 with fewer digits.
    text = moment.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None).isoformat()
    return f"{text}Z"


def parse_date(text: str) -> datetime.datetime:
    """The time that a text states; a date such as 2027-01-31 is its start in UTC.

    Raises ValueError if the text is neither.
    """
    return parse_instant(f"{text}T00:00:00Z" if re.fullmatch(r"[0-9-]{10}", text) else text)


def parse_instant(text: str) -> datetime.datetime:
    """The time that `format_instant` wrote as `text`; raises ValueError if it is not one."""
    if not re.fullmatch(INSTANT, text):
        raise ValueError(f"{text!r} is not like 2027-01-31T00:00:00Z")
    return datetime.datetime.fromisoformat(text)
