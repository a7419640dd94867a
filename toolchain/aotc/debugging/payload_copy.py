"""A variant's files out of an artifact's container, each with the digest that the manifest states.

No signature is looked at: who made the artifact stays open, and what it says of its files does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aotc.contract.manifest.document import Manifest
from aotc.errors import AotcError
from aotc.files.artifact_layout import PAYLOAD
from aotc.files.failures import cannot_write
from aotc.verification.container.base import Container
from aotc.verification.references.model_references import require_inside

_BUFFER: Final = 1 << 20


def copy_files(
    container: Container, manifest: Manifest, paths: Iterable[str], folder: Path
) -> None:
    """Copy payload files into `folder`, under their paths.

    Raises AOTC-G005 where a digest differs, G006, G014 (a model refers to other files), I018, I026.
    """
    wanted = dict.fromkeys(paths)
    require_inside(container, manifest, wanted.keys())
    entries = {entry.path: entry for entry in manifest.files}
    for path in wanted:
        target = folder / path
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with container.open(f"{PAYLOAD}/{path}") as source, target.open("wb") as file:
                while part := source.read(_BUFFER):
                    digest.update(part)
                    file.write(part)
        except OSError as error:
            raise cannot_write(error, "cannot copy a file of the artifact", path) from None
        if digest.hexdigest() != entries[path].sha256:
            raise AotcError(
                "AOTC-G005",
                "a file of the payload is not the one that the manifest lists",
                where=f"{PAYLOAD}/{path}",
                expected=entries[path].sha256,
                found=digest.hexdigest(),
            )
