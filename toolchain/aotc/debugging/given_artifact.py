"""An artifact that is opened beside the model that it says it was built from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotc.contract.artifact_names import artifact_path
from aotc.contract.manifest.document import Manifest
from aotc.engine.file_digest import file_sha256
from aotc.errors import AotcError
from aotc.graphs.model_file import require_model_file
from aotc.inspection.summary import read_manifest, read_manifest_bytes
from aotc.records import record
from aotc.verification.container.base import Container
from aotc.verification.container.opening import open_container


@record
class GivenArtifact:
    """What an artifact says of itself, and its container."""

    path: Path
    container: Container
    manifest: Manifest
    artifact_id: str


@contextmanager
def open_given(artifact: str | Path, model: Path) -> Iterator[GivenArtifact]:
    """Open an artifact whose source is `model`, byte for byte.

    Raises AOTC-I083 for another model, I001 if there is nothing at either path, and what
    `inspection.summary.inspect` does for an artifact that cannot be read.
    """
    path = artifact_path(artifact)
    require_model_file(model)
    with open_container(path) as container:
        content = read_manifest_bytes(container, path)
        manifest = read_manifest(content)
        digest = file_sha256(model)
        if digest != manifest.source.sha256:
            raise AotcError(
                "AOTC-I083",
                "the artifact was built from another model",
                where=str(model),
                expected=f"sha256 {manifest.source.sha256}",
                found=f"sha256 {digest}",
            )
        yield GivenArtifact(
            path=path,
            container=container,
            manifest=manifest,
            artifact_id=hashlib.sha256(content).hexdigest(),
        )
