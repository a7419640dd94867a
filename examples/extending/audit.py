"""Predicate `urn:aotc:audit:v1`: who looked at an artifact, and what they found."""

from __future__ import annotations

from typing import Annotated

from aotc.base.records import record
from aotc.spec.attestations import ArtifactName, Instant
from aotc.spec.codec import Json, decode


@record
class Audit:
    """An audit of an artifact by its signer."""

    artifact: ArtifactName
    issued_at: Instant
    scope: Annotated[str, "what was looked at"]
    result: str


def audit_in_words(predicate: Json) -> str:
    """The audit, in a few words; raises ParseError."""
    audit = decode(Audit, predicate, allow_unknown=True)
    return f"audited for {audit.scope} at {audit.issued_at}: {audit.result}"
