"""What manifests of registries say of their content (OCI image specification 1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.registry.references import is_digest
from aotc.spec.codec import Json, ParseError
from aotc.spec.json import strict_json

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
MAX_MANIFEST: Final = 4 << 20
"""Bytes; what registries take at least."""


@record
class Descriptor:
    """One piece of content: its type, digest (`sha256:…`) and size in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    def to_json(self) -> dict[str, Json]:
        """As a manifest or an index has it; what is empty is left out."""
        plain: dict[str, Json] = {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
        }
        if self.artifact_type is not None:
            plain["artifactType"] = self.artifact_type
        if self.annotations:
            plain["annotations"] = dict(self.annotations)
        return plain


def read_descriptor(value: Json, where: str) -> Descriptor:
    """A descriptor of a manifest; raises AOTC-I207 where it is none, or not of sha256."""
    if isinstance(value, dict):
        media_type, size = value.get("mediaType"), value.get("size")
        digest, artifact_type = value.get("digest"), value.get("artifactType")
        if (
            isinstance(media_type, str)
            and isinstance(digest, str)
            and is_digest(digest)
            and type(size) is int
            and size >= 0
            and (artifact_type is None or isinstance(artifact_type, str))
        ):
            return Descriptor(
                media_type=media_type,
                digest=digest,
                size=size,
                annotations=read_annotations(value, where),
                artifact_type=artifact_type or None,
            )
    raise AotcError(
        "AOTC-I207",
        "A manifest describes content as nothing that can be fetched",
        where=where,
        expected="a media type, a sha256 digest and a size",
        found=str(value)[:200],
    )


def read_annotations(document: Mapping[str, Json], where: str) -> Mapping[str, str]:
    """The annotations of a manifest or descriptor; raises AOTC-I207 where they are no texts."""
    found = document.get("annotations")
    if found is None:
        return {}
    if isinstance(found, dict):
        texts = {name: text for name, text in found.items() if isinstance(text, str)}
        if len(texts) == len(found):
            return texts
    raise AotcError(
        "AOTC-I207", "Annotations are not texts by name", where=where, found=str(found)[:200]
    )


def read_document(content: bytes, where: str) -> dict[str, Json]:
    """A manifest, an index, or another answer in JSON; raises AOTC-I207 where it is none."""
    problem = "another kind of value"
    try:
        found = strict_json(content, limit=MAX_MANIFEST)
        if isinstance(found, dict):
            return found
    except ParseError as error:
        problem = str(error)
    raise AotcError(
        "AOTC-I207",
        "The registry's answer is not the JSON that it should be",
        where=where,
        expected="one JSON object",
        found=problem,
    )
