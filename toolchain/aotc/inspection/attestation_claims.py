"""What an attestation says, in a few words; nobody vouches for it here."""

from __future__ import annotations

from aotc.contract.attestation_kinds import kind_of
from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.trust.attestations import Approval, Qualification

_MOST = 200


def in_words(predicate_type: str, predicate: Json) -> str:
    """What a predicate says; empty where its type is not known here, or it does not fit it."""
    kind = kind_of(predicate_type)
    try:
        return kind.load_summary()(predicate)[:_MOST] if kind is not None else ""
    except ParseError:
        return ""


def oms(predicate: Json) -> str:
    """Of an OMS signature."""
    return f"{_number(_count(predicate, 'resources'), 'file')} of the payload"


def evidence(predicate: Json) -> str:
    """Of the evidence of a build."""
    return f"measured at the build of {_text(predicate, 'built_at')}"


def provenance(predicate: Json) -> str:
    """Of SLSA provenance."""
    builder = _text(predicate, "runDetails", "builder", "id")
    when = _text(predicate, "runDetails", "metadata", "finishedOn")
    release = _text(predicate, "buildDefinition", "externalParameters", "version")
    definition = predicate.get("buildDefinition") if isinstance(predicate, dict) else None
    number = _count(definition, "resolvedDependencies")
    what = "" if release in ("", "?") else f"release {release}, "
    return (
        f"{what}built by {builder} at {when} from {_number(number, 'dependency', 'dependencies')}"
    )


def sbom(predicate: Json) -> str:
    """Of a bill of materials in CycloneDX."""
    version = _text(predicate, "specVersion")
    return f"CycloneDX {version}, {_number(_count(predicate, 'components'), 'component')}"


def approval(predicate: Json) -> str:
    """Of an approval; raises ParseError."""
    said = decode(Approval, predicate, allow_unknown=True)
    note = f": {said.note}" if said.note else ""
    return f"approved for {said.channel} until {said.expires}{note}"


def qualification(predicate: Json) -> str:
    """Of a qualification; raises ParseError."""
    said = decode(Qualification, predicate, allow_unknown=True)
    target = said.target
    return (
        f"{said.variant} accepted on {target.os} {target.architecture}, ONNX Runtime "
        f"{target.onnxruntime}, target {said.target_sha256[:12]}, at {said.issued_at}: "
        f"{said.verdict}"
    )


def _count(data: Json, name: str) -> int:
    found = data.get(name) if isinstance(data, dict) else None
    return len(found) if isinstance(found, list) else 0


def _number(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def _text(data: Json, *path: str) -> str:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else "?"
