"""The kinds of attestations: what may be said of an artifact, one row a kind.

A further kind is its usage in `Usage`, a row of `KINDS`, and a file with its record and with what
tells it in words.  Keys may then be allowed it, rules may require it, and `inspect` tells it.

Sources of those that are not ours: OpenSSF Model Signing v1.0, SLSA provenance v1
(slsa.dev/spec/v1.0/provenance), CycloneDX 1.6 (cyclonedx.org/docs/1.6/json).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from aotc.contract.versions import is_newer
from aotc.files.artifact_layout import ATTESTATIONS
from aotc.records import record
from aotc.registry import load

# How the name of each file ends.
BUNDLE_SUFFIX: Final = ".sigstore.json"

# What a key may sign, and a rule may require; by it files are named, too.
Usage = Literal["oms", "provenance", "sbom", "evidence", "approval", "qualification"]


@record
class AttestationKind:
    """One kind of attestation.

    `record`: its predicate, as `module:class`; empty where the format is another's.  `words`: what
    tells a predicate in a few words, as `module:function`; it may raise ParseError.  `made_at` and
    `artifact_id` are paths in the predicate: to the moment when it was made, and to the artifact
    that it names beside its subject; empty where it says no such thing.  `by_build`: each build
    makes it, with the key of the build.
    """

    usage: Usage
    predicate_type: str
    words: str
    record: str = ""
    made_at: tuple[str, ...] = ()
    artifact_id: tuple[str, ...] = ()
    by_build: bool = False

    def name(self, *which: str) -> str:
        """What a file of it is called, without its suffix; `which` tells it from others of it."""
        return "-".join((self.usage, *which))

    @property
    def path(self) -> str:
        """The file of it in an artifact that the build made."""
        return f"{ATTESTATIONS}/{self.name()}{BUNDLE_SUFFIX}"

    def is_called(self, path: str) -> bool:
        """Whether a file is called as one of it, which says nothing of what it is."""
        name = path.rpartition("/")[2]
        return name == f"{self.name()}{BUNDLE_SUFFIX}" or name.startswith(f"{self.usage}-")

    def load_record(self) -> Any:
        """The class of its predicate; where the format is ours."""
        return load(self.record)

    def load_words(self) -> Callable[[Any], str]:
        """What tells a predicate, as JSON, in a few words."""
        words: Callable[[Any], str] = load(self.words)
        return words


_ROWS: Final = (
    AttestationKind(
        usage="oms",
        predicate_type="https://model_signing/signature/v1.0",
        words="aotc.inspection.attestation_claims:oms",
        by_build=True,
    ),
    AttestationKind(
        usage="provenance",
        predicate_type="https://slsa.dev/provenance/v1",
        words="aotc.inspection.attestation_claims:provenance",
        made_at=("runDetails", "metadata", "finishedOn"),
        by_build=True,
    ),
    AttestationKind(
        usage="sbom",
        predicate_type="https://cyclonedx.org/bom",
        words="aotc.inspection.attestation_claims:sbom",
        by_build=True,
    ),
    AttestationKind(
        usage="evidence",
        predicate_type="urn:aotc:evidence:v1",
        record="aotc.contract.results.build_evidence:Evidence",
        words="aotc.inspection.attestation_claims:evidence",
        made_at=("built_at",),
        by_build=True,
    ),
    AttestationKind(
        usage="approval",
        predicate_type="urn:aotc:approval:v1",
        record="aotc.contract.trust.attestations:Approval",
        words="aotc.inspection.attestation_claims:approval",
        made_at=("issued_at",),
        artifact_id=("artifact", "id"),
    ),
    AttestationKind(
        usage="qualification",
        predicate_type="urn:aotc:qualification:v1",
        record="aotc.contract.trust.attestations:Qualification",
        words="aotc.inspection.attestation_claims:qualification",
        made_at=("issued_at",),
        artifact_id=("artifact", "id"),
    ),
)

# In the order in which they are listed anywhere.
KINDS: Final[Mapping[Usage, AttestationKind]] = {row.usage: row for row in _ROWS}


def kind_of(predicate_type: str) -> AttestationKind | None:
    """The kind of a signed predicate type; None for what is none of these."""
    return next((kind for kind in _ROWS if kind.predicate_type == predicate_type), None)


def older_kind(predicate_type: str) -> AttestationKind | None:
    """The kind of ours that a later version of it replaces; None: it is none of ours."""
    return next((kind for kind in _ROWS if is_newer(predicate_type, kind.predicate_type)), None)
