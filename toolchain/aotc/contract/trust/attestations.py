"""What is said of an artifact once it is built: the predicates of approval and qualification."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Protocol

from aotc.contract.codec.canonical import canonical_sha256
from aotc.contract.codec.parsing import Bounds, Pattern, Problem, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.payload_files import Sha256
from aotc.contract.results.reports import Verdict
from aotc.contract.target import Target
from aotc.records import field, record, replace

BUILD_TYPE: Final = "urn:aotc:build:v1"
LOCAL_BUILDER: Final = "urn:aotc:builder:local"

# It stands in file names.
CHANNEL: Final = r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?"
INSTANT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"

Channel = Annotated[str, Pattern(CHANNEL)]
Instant = Annotated[str, Pattern(INSTANT), "UTC, ISO 8601"]


@record
class ArtifactName:
    """Which artifact: the model's name, and the sha256 of aotc.json."""

    name: str
    id: Sha256


class Predicate(Protocol):
    """The predicate of a statement that is added to an artifact."""

    @property
    def artifact(self) -> ArtifactName:
        """The one that it is about."""


@record
class Approval:
    """Predicate `urn:aotc:approval:v1`: the artifact may be used in a channel, for a time."""

    channel: Annotated[Channel, "such as prod or staging"]
    expires: Annotated[Instant, "not valid from then on"]
    issued_at: Instant
    artifact: ArtifactName
    note: str = ""

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        found = []
        for name in ("expires", "issued_at"):
            try:
                parse_instant(getattr(self, name))
            except ValueError:
                found.append(Problem(name, "is no moment"))
        return found


@record
class Latency:
    """Of calls with one fixture, one after another; seconds."""

    fixture: str
    variant: Annotated[str, "that took the calls"]
    sizes: Annotated[Mapping[str, int], "of the dims"] = field(default_factory=dict)
    runs: Annotated[int, Bounds(1)]
    median_seconds: float
    lower_seconds: Annotated[float, "first quartile"]
    upper_seconds: Annotated[float, "third quartile"]


@record
class Qualification:
    """Predicate `urn:aotc:qualification:v1`: what an acceptance on one target saw."""

    target: Annotated[Target, "where it ran, as 'aotc target probe' describes it; no names"]
    target_sha256: Annotated[Sha256, "of the target in canonical form, without what names it"]
    artifact: ArtifactName
    variant: Annotated[str, "of the profile; with all of its buckets"]
    variants: Annotated[tuple[str, ...], Bounds(1), "that were loaded and accepted"]
    verdict: Annotated[Verdict, "on the target"]
    load_seconds: Annotated[float, "sessions, placement and warm-up"]
    verify_seconds: Annotated[float, "signature and digests"]
    latency: Annotated[tuple[Latency, ...], "by fixture"]
    peak_memory_bytes: Annotated[int, "resident, of the process that loaded and ran it"]
    fixtures: Annotated[int, Bounds(1), "that ran and matched the golden outputs"]
    findings: tuple[Finding, ...] = ()
    toolchain: Annotated[str, "version of aotc that ran it"]
    issued_at: Instant


@record
class AttestReport:
    """`aotc sign --json` and `aotc attest --json`: what was added."""

    schema: Literal["aotc.attest/1"] = "aotc.attest/1"
    artifact: str
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    path: Annotated[str, "file that was written"]
    predicate_type: str
    key_id: str
    identity: Annotated[str, "of a keyless signer: WHO by ISSUER; empty for a key"] = ""
    development_key: bool
    replaced: Annotated[bool, "another file of that name was there"] = False
    approval: Approval | None = None
    qualification: Qualification | None = None
    findings: Annotated[tuple[Finding, ...], "of the key that signed"] = ()


def target_digest(target: Target) -> str:
    """sha256 (hex) of a target: what it is and has, without its name, text and free fields.

    The digests of plugins are left out: they are known only where a variant needs them.
    """
    plugins = tuple(replace(each, sha256=None) for each in target.plugins)
    return canonical_sha256(
        encode(replace(target, name="host", description="", extra={}, plugins=plugins))
    )


def instant(moment: datetime.datetime) -> Instant:
    """A moment as it is written in predicates: UTC, whole seconds."""
    # strftime may write years before 1000 with fewer digits.
    text = moment.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None).isoformat()
    return f"{text}Z"


def parse_date(text: str) -> datetime.datetime:
    """A moment, or the beginning of a date in UTC such as 2027-01-31; raises ValueError."""
    return parse_instant(f"{text}T00:00:00Z" if re.fullmatch(r"[0-9-]{10}", text) else text)


def parse_instant(text: str) -> datetime.datetime:
    """The moment that `instant` wrote; raises ValueError."""
    if not re.fullmatch(INSTANT, text):
        raise ValueError(f"{text!r} is not like 2027-01-31T00:00:00Z")
    return datetime.datetime.fromisoformat(text)
