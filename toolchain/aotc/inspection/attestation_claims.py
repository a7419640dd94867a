"""What an attestation says, in a few words; nothing here is verified."""

from __future__ import annotations

from aotc.contract.attestation_kinds import kind_of
from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.trust.attestations import Approval, Qualification

_MAX_LENGTH = 200


def claim_text(predicate_type: str, predicate: Json) -> str:
    """What a predicate says; empty if its type is unknown, or it does not match its type."""
    kind = kind_of(predicate_type)
    try:
        return kind.load_summary()(predicate)[:_MAX_LENGTH] if kind is not None else ""
    except ParseError:
        return ""


def oms(predicate: Json) -> str:
    """The words for an OMS signature."""
    return f"{_counted(_count(predicate, 'resources'), 'file')} of the payload"


def evidence(predicate: Json) -> str:
    """The words for the evidence of a build."""
    return f"measured at the build of {_text(predicate, 'built_at')}"


def provenance(predicate: Json) -> str:
    """The words for SLSA provenance."""
    builder = _text(predicate, "runDetails", "builder", "id")
    when = _text(predicate, "runDetails", "metadata", "finishedOn")
    release = _text(predicate, "buildDefinition", "externalParameters", "version")
    definition = predicate.get("buildDefinition") if isinstance(predicate, dict) else None
    number = _count(definition, "resolvedDependencies")
    what = "" if release in ("", "?") else f"release {release}, "
    return (
        f"{what}built by {builder} at {when} from {_counted(number, 'dependency', 'dependencies')}"
    )


def sbom(predicate: Json) -> str:
    """The words for a CycloneDX bill of materials."""
    version = _text(predicate, "specVersion")
    return f"CycloneDX {version}, {_counted(_count(predicate, 'components'), 'component')}"


def approval(predicate: Json) -> str:
    """The words for an approval; raises ParseError."""
    found = decode(Approval, predicate, allow_unknown=True)
    note = f": {found.note}" if found.note else ""
    return f"approved for {found.channel} until {found.expires}{note}"


def qualification(predicate: Json) -> str:
    """The words for a qualification; raises ParseError."""
    found = decode(Qualification, predicate, allow_unknown=True)
    target = found.target
    return (
        f"{found.variant} accepted on {target.os} {target.architecture}, ONNX Runtime "
        f"{target.onnxruntime}, target {found.target_sha256[:12]}, at {found.issued_at}: "
        f"{found.verdict}"
    )


def _count(data: Json, name: str) -> int:
    found = data.get(name) if isinstance(data, dict) else None
    return len(found) if isinstance(found, list) else 0


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def _text(data: Json, *path: str) -> str:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else "?"
