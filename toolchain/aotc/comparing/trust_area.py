"""Who claims to have signed what, and what statements say that is not a time."""

from __future__ import annotations

from typing import Any

from aotc.comparing.field_changes import changes_of
from aotc.comparing.opened_artifact import ArtifactContents
from aotc.contract.attestation_kinds import kind_of
from aotc.contract.codec.parsing import Json
from aotc.contract.results.diff_report import Change
from aotc.contract.results.reports import Claim


def trust_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Signers, kinds of attestations with their keys, approvals, and provenance; as claimed."""
    return changes_of(_claimed(a), _claimed(b))


def _claimed(artifact: ArtifactContents) -> dict[str, Any]:
    signed = [claim for claim in artifact.claims if _usage(claim) == "oms"]
    found: dict[str, Any] = {"signers": sorted(claim.key_id for claim in signed)}
    found["attestations"] = sorted(
        f"{_usage(claim)} by {claim.key_id or 'a key that is not named'}"
        for claim in artifact.claims
    )
    for usage in ("approval", "qualification"):
        found[usage] = sorted(claim.says for claim in artifact.claims if _usage(claim) == usage)
    found["provenance"] = [
        {
            "builder": _at(predicate, "runDetails", "builder", "id"),
            "release": _at(predicate, "buildDefinition", "externalParameters", "version"),
            "type": _at(predicate, "buildDefinition", "buildType"),
        }
        for predicate in artifact.predicates("provenance")
    ]
    return found


def _usage(claim: Claim) -> str:
    kind = kind_of(claim.predicate_type)
    return kind.usage if kind is not None else claim.predicate_type


def _at(data: Json, *path: str) -> Json:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else None
