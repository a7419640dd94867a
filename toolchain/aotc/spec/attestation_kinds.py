"""The kinds of attestations: what a signer can state about an artifact, one row per kind.

To add a kind, add its usage to `Usage`, a row to `KINDS`, a record for its predicate, and a
function that summarizes a predicate.  A policy can then allow keys to sign it and require it in
rules, and `inspect` shows it.

Formats of others: OpenSSF Model Signing v1.0, SLSA provenance v1
(slsa.dev/spec/v1.0/provenance), CycloneDX 1.6 (cyclonedx.org/docs/1.6/json).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from aotc.base.files.folders import ATTESTATIONS
from aotc.base.records import record
from aotc.spec.versions import is_newer

# Ends the name of every attestation file.
BUNDLE_SUFFIX: Final = ".sigstore.json"

# What a policy allows a key to sign, and what a rule requires; file names begin with it.
Usage = Literal[
    "oms", "provenance", "sbom", "evidence", "approval", "qualification", "reproduction"
]


@record
class AttestationKind:
    """One kind of attestation.

    `record` is the record of its predicate, as `module:class`; empty for a format of others.
    `summary` is a function that describes a predicate in a few words, as `module:function`; it may
    raise ParseError.  `made_at` and `artifact_id` are paths of keys in the predicate, to the time
    when it was made and to the artifact that it names in addition to its subject; empty if it
    states none.  `by_build` is true if every build makes it, with the build's key.
    """

    usage: Usage
    predicate_type: str
    summary: str
    record: str = ""
    made_at: tuple[str, ...] = ()
    artifact_id: tuple[str, ...] = ()
    by_build: bool = False

    def file_stem(self, *parts: str) -> str:
        """The name of its file without suffix; `parts` distinguish several files of this kind."""
        return "-".join((self.usage, *parts))

    @property
    def path(self) -> str:
        """Where a build puts it in an artifact."""
        return f"{ATTESTATIONS}/{self.file_stem()}{BUNDLE_SUFFIX}"

    def matches_name(self, path: str) -> bool:
        """Whether a file has a name of this kind; its content may be of another kind."""
        name = path.rpartition("/")[2]
        return name == f"{self.file_stem()}{BUNDLE_SUFFIX}" or name.startswith(f"{self.usage}-")

    def load_record(self) -> Any:
        """The record of its predicate; for kinds with a `record` only."""
        from aotc.base.registry import load

        return load(self.record)

    def load_summary(self) -> Callable[[Any], str]:
        """The function that describes a predicate, given as JSON-like data, in a few words."""
        from aotc.base.registry import load

        summary: Callable[[Any], str] = load(self.summary)
        return summary


_ROWS: Final = (
    AttestationKind(
        usage="oms",
        predicate_type="https://model_signing/signature/v1.0",
        summary="aotc.tools.inspect:oms",
        by_build=True,
    ),
    AttestationKind(
        usage="provenance",
        predicate_type="https://slsa.dev/provenance/v1",
        summary="aotc.tools.inspect:provenance",
        made_at=("runDetails", "metadata", "finishedOn"),
        by_build=True,
    ),
    AttestationKind(
        usage="sbom",
        predicate_type="https://cyclonedx.org/bom",
        summary="aotc.tools.inspect:sbom",
        by_build=True,
    ),
    AttestationKind(
        usage="evidence",
        predicate_type="urn:aotc:evidence:v1",
        record="aotc.spec.evidence:Evidence",
        summary="aotc.tools.inspect:evidence",
        made_at=("built_at",),
        by_build=True,
    ),
    AttestationKind(
        usage="approval",
        predicate_type="urn:aotc:approval:v1",
        record="aotc.spec.attestations:Approval",
        summary="aotc.tools.inspect:approval",
        made_at=("issued_at",),
        artifact_id=("artifact", "id"),
    ),
    AttestationKind(
        usage="qualification",
        predicate_type="urn:aotc:qualification:v1",
        record="aotc.spec.attestations:Qualification",
        summary="aotc.tools.inspect:qualification",
        made_at=("issued_at",),
        artifact_id=("artifact", "id"),
    ),
    AttestationKind(
        usage="reproduction",
        predicate_type="urn:aotc:reproduction:v1",
        record="aotc.spec.reproduction:Reproduction",
        summary="aotc.spec.reproduction:summary",
        made_at=("issued_at",),
        artifact_id=("artifact", "id"),
    ),
)

# In the order in which every list shows them.
KINDS: Final[Mapping[Usage, AttestationKind]] = {row.usage: row for row in _ROWS}


def kind_of(predicate_type: str) -> AttestationKind | None:
    """The kind with this predicate type, or None."""
    return next((kind for kind in _ROWS if kind.predicate_type == predicate_type), None)


def older_kind(predicate_type: str) -> AttestationKind | None:
    """The kind of which this predicate type is a later version, or None."""
    return next((kind for kind in _ROWS if is_newer(predicate_type, kind.predicate_type)), None)
