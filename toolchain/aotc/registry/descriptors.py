"""What manifests of registries say of their content (OCI image specification 1.1)."""

from __future__ import annotations

from collections.abc import Mapping

from aotc.base.records import field, record


@record
class Descriptor:
    """One piece of content: its type, digest (`sha256:…`) and size in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None
