"""What a comparison reads of one artifact: its manifest, its attestations, and its open files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from aotc.contract.artifact_names import artifact_path, stated_id
from aotc.contract.attestation_kinds import KINDS, Usage
from aotc.contract.codec.parsing import Json, ParseError
from aotc.contract.manifest.document import Manifest
from aotc.contract.results.build_evidence import Evidence, VariantEvidence
from aotc.contract.results.reports import Claim, Refusal
from aotc.errors import AotcError
from aotc.inspection.summary import read_attestations, read_manifest, read_manifest_bytes
from aotc.records import record
from aotc.signing import dsse, statements
from aotc.verification.container.base import Container
from aotc.verification.container.opening import open_container

# Suffixes of models, of which the message can say what to do.
_MODELS: Final = (".onnx", ".ort", ".pb", ".pt", ".pt2", ".tflite", ".safetensors")


@record
class ArtifactContents:
    """One artifact, open: what it says of itself, and its container for what is read later."""

    path: Path
    container: Container
    manifest: Manifest
    manifest_bytes: int
    artifact_id: str
    claims: tuple[Claim, ...]
    evidence: Evidence | None
    problems: tuple[Refusal, ...]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payload, as the manifest lists them, with the manifest itself."""
        return sum(entry.size for entry in self.manifest.files) + self.manifest_bytes

    def measured(self, variant: str) -> VariantEvidence | None:
        """What the build measured of a variant; None without evidence."""
        found = self.evidence.variants if self.evidence is not None else ()
        return next((each for each in found if each.name == variant), None)

    def predicates(self, usage: Usage) -> tuple[Json, ...]:
        """The predicates of attestations of one kind; those that cannot be read are left out."""
        found = []
        for claim in self.claims:
            if claim.predicate_type != KINDS[usage].predicate_type:
                continue
            try:
                content = self.container.read(claim.path, dsse.MAX_BUNDLE_BYTES)
                found.append(statements.read_unverified(content).predicate)
            except (AotcError, ParseError):
                # It is among the problems already.
                continue
        return tuple(found)


def open_artifact(name: str | Path) -> ArtifactContents:
    """Open the artifact at a path, or the store's entry of an id; its container is to be closed.

    Raises AOTC-I059 for a file that is no packed artifact, G015 for a folder that is no artifact,
    I001 if there is nothing, and what `aotc inspect` does for an artifact that cannot be read.
    """
    path = artifact_path(name)
    if stated_id(path) is None and path.is_file():
        _require_packed(path)
    container = open_container(path)
    try:
        return _read(path, container)
    except BaseException:
        container.close()
        raise


def _read(path: Path, container: Container) -> ArtifactContents:
    content = read_manifest_bytes(container, path)
    artifact_id = hashlib.sha256(content).hexdigest()
    problems: list[Refusal] = []
    claims, evidence = read_attestations(container, artifact_id, problems)
    return ArtifactContents(
        path=path,
        container=container,
        manifest=read_manifest(content),
        manifest_bytes=len(content),
        artifact_id=artifact_id,
        claims=claims,
        evidence=evidence,
        problems=tuple(problems),
    )


def _require_packed(path: Path) -> None:
    from aotc.verification.container.archive_container import is_packed

    if is_packed(path):
        return
    is_model = path.suffix.lower() in _MODELS
    raise AotcError(
        "AOTC-I059",
        "this is a model, and artifacts are compared"
        if is_model
        else "this file is not a packed artifact",
        where=str(path),
        expected="an artifact: a folder NAME.aotc, a packed file, or the id of one in a store",
        fix=f"Build it first, and compare what was built: aotc build {path.name} "
        f"-o {path.stem}.aotc"
        if is_model
        else "",
    )
