"""What an attestation says, in a few words; nobody vouches for it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.trust.attestations import (
    APPROVAL_PREDICATE,
    PROVENANCE_PREDICATE,
    QUALIFICATION_PREDICATE,
    SBOM_PREDICATE,
    Approval,
    Qualification,
)
from aotc.contract.versions import EVIDENCE_PREDICATE
from aotc.signing import oms

_MOST = 200


def in_words(predicate_type: str, predicate: Json) -> str:
    """What a predicate says; empty where its type is not known here, or it does not fit it."""
    tell = _TELLERS.get(predicate_type)
    try:
        return tell(predicate)[:_MOST] if tell is not None else ""
    except ParseError:
        return ""


def _oms(predicate: Json) -> str:
    return f"{_number(_count(predicate, 'resources'), 'file')} of the payload"


def _evidence(predicate: Json) -> str:
    return f"measured at the build of {_text(predicate, 'built_at')}"


def _provenance(predicate: Json) -> str:
    builder = _text(predicate, "runDetails", "builder", "id")
    when = _text(predicate, "runDetails", "metadata", "finishedOn")
    release = _text(predicate, "buildDefinition", "externalParameters", "version")
    definition = predicate.get("buildDefinition") if isinstance(predicate, dict) else None
    number = _count(definition, "resolvedDependencies")
    what = "" if release in ("", "?") else f"release {release}, "
    return (
        f"{what}built by {builder} at {when} from {_number(number, 'dependency', 'dependencies')}"
    )


def _sbom(predicate: Json) -> str:
    version = _text(predicate, "specVersion")
    return f"CycloneDX {version}, {_number(_count(predicate, 'components'), 'component')}"


def _approval(predicate: Json) -> str:
    said = decode(Approval, predicate, allow_unknown=True)
    note = f": {said.note}" if said.note else ""
    return f"approved for {said.channel} until {said.expires}{note}"


def _qualification(predicate: Json) -> str:
    said = decode(Qualification, predicate, allow_unknown=True)
    target = said.target
    return (
        f"{said.variant} accepted on {target.os} {target.architecture}, ONNX Runtime "
        f"{target.onnxruntime}, target {said.target_sha256[:12]}, at {said.issued_at}: "
        f"{said.verdict}"
    )


_TELLERS: Final[Mapping[str, Callable[[Json], str]]] = {
    oms.PREDICATE_TYPE: _oms,
    EVIDENCE_PREDICATE: _evidence,
    PROVENANCE_PREDICATE: _provenance,
    SBOM_PREDICATE: _sbom,
    APPROVAL_PREDICATE: _approval,
    QUALIFICATION_PREDICATE: _qualification,
}


def _count(data: Json, name: str) -> int:
    found = data.get(name) if isinstance(data, dict) else None
    return len(found) if isinstance(found, list) else 0


def _number(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def _text(data: Json, *path: str) -> str:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else "?"
