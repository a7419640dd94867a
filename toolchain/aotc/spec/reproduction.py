"""What a second build of an artifact came to: `aotc reproduce --json`, and what is signed of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from aotc.base.records import field, record
from aotc.spec.answers import SameCalls
from aotc.spec.attestations import ArtifactName, AttestReport, Instant
from aotc.spec.codec import Bounds, Json, decode
from aotc.spec.diff_report import Change, DiffReport
from aotc.spec.payload import Finding, Sha256

Reproduced = Literal["identical", "in-part", "same-answers"]
Outcome = Literal["identical", "in-part", "same-answers", "different"]

# From what counts most to what counts least.
OUTCOMES: Final[tuple[Outcome, ...]] = ("identical", "in-part", "same-answers", "different")
IN_WORDS: Final[Mapping[Outcome, str]] = {
    "identical": "every byte of the payload is the same",
    "in-part": "the same, but for what cannot be the same here",
    "same-answers": "other bytes, with the same answers",
    "different": "other bytes, and not the same answers",
}


@record
class NotReproduced:
    """What of an artifact cannot be made again here, known before anything is built."""

    what: str
    why: str


@record
class PackageUsed:
    """A distribution that the artifact records, and what of it was used."""

    name: str
    recorded: Annotated[str, "version"]
    used: Annotated[str, "version; empty: none"] = ""
    sha256: Annotated[str, "of the file that was installed; empty: nothing was, or unknown"] = ""
    same: Annotated[bool | None, "its files are the recorded ones; null: none are recorded"] = None


@record
class BuildEnvironment:
    """Where the artifact was built again, beside what it records."""

    how: Annotated[
        Literal["made", "this"], "made: of what the artifact records; this: the caller's own"
    ]
    installer: Annotated[str, "what made it, with its version; empty: nothing was made"] = ""
    reused: Annotated[bool, "made by an earlier call"] = False
    python: Annotated[str, "version"]
    aotc: Annotated[str, "version"]
    aotc_sha256: Annotated[Sha256, "of its sources"]
    aotc_form: Annotated[
        Literal["release", "checkout"], "what the artifact was built with: a checkout is no release"
    ]
    aotc_from: Annotated[str, "where its sources were taken from"]
    packages: tuple[PackageUsed, ...] = ()
    lock_sha256: Annotated[str, "of the requirements with hashes; empty: nothing was made"] = ""


@record
class VariantRebuilt:
    """A variant, and whether its graph, weights and promises are the same."""

    name: str
    outcome: Annotated[
        Literal["identical", "equal", "different", "not-built"],
        "identical: every byte; equal: the same nodes, tensors and promises, with weights in other "
        "files, as variants share them and not all were built",
    ]


@record
class FileDifference:
    """A file of the payload that differs, or that one of both has."""

    path: str
    role: str
    recorded: Annotated[str, "sha256; empty: the artifact has no such file"] = ""
    rebuilt: Annotated[str, "sha256; empty: the rebuild has no such file"] = ""
    stated: Annotated[bool, "it was told before that this cannot be the same here"] = False


@record
class Reproduction:
    """Predicate `urn:aotc:reproduction:v1`: somebody built the artifact again."""

    artifact: ArtifactName
    outcome: Reproduced
    rebuilt_id: Annotated[Sha256, "of the aotc.json that was built"]
    builder: Annotated[str, "URI of who built it again"]
    environment: BuildEnvironment
    host: Annotated[Mapping[str, str], "OS, architecture and CPU features, without names"]
    variants: Annotated[tuple[VariantRebuilt, ...], Bounds(1)]
    not_reproduced: tuple[NotReproduced, ...] = ()
    files: tuple[FileDifference, ...] = ()
    issued_at: Instant


@record
class ReproduceReport:
    """`aotc reproduce --json`: what building an artifact again came to."""

    schema: Literal["aotc.reproduce/1"] = "aotc.reproduce/1"
    artifact: str
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    name: str
    model: str
    outcome: Outcome
    rebuilt_id: Annotated[str, "of the aotc.json that was built"]
    not_reproduced: Annotated[tuple[NotReproduced, ...], "told before anything was built"] = ()
    environment: BuildEnvironment
    host: Annotated[Mapping[str, str], "where it was built again"] = field(default_factory=dict)
    variants: tuple[VariantRebuilt, ...] = ()
    files: tuple[FileDifference, ...] = ()
    fields: Annotated[tuple[Change, ...], "of aotc.json that differ, but for its files"] = ()
    diff: Annotated[DiffReport | None, "by area, node and tensor; null: identical"] = None
    answers: Annotated[SameCalls | None, "of both; null: identical"] = None
    kept: Annotated[str, "where the rebuild is; empty: it was removed"] = ""
    attested: Annotated[AttestReport | None, "the attestation that was added"] = None
    findings: tuple[Finding, ...] = ()
    seconds: float


def summary(predicate: Json) -> str:
    """The words for a reproduction; raises ParseError."""
    found = decode(Reproduction, predicate, allow_unknown=True)
    how = "here" if found.environment.how == "this" else "in the recorded environment"
    return f"built again by {found.builder} {how}, at {found.issued_at}: {IN_WORDS[found.outcome]}"
