"""Opening an artifact: a folder, a packed artifact, or an entry of a store."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.failures import translated_errors
from aotc.base.files.folders import MANIFEST
from aotc.spec.json import MAX_JSON_BYTES
from aotc.spec.versions import stated_id
from aotc.trust.container import Container, FolderContainer


def open_container(path: Path) -> Container:
    """Open the artifact at a path, or the entry of an id (see `spec.versions`).

    Raises AOTC-I001 if there is nothing to read, G015 if it is neither a folder nor a packed
    artifact, G008, G012 and G039 for a packed artifact, I027 if it cannot be a path, and what
    `open_entry` does for an id.
    """
    requested = stated_id(path)
    if requested is not None:
        return open_entry(requested)
    try:
        is_file = path.is_file()
    except OSError:
        is_file = False
    with translated_errors(str(path)):
        if is_file:
            from aotc.trust.archive import ArchiveContainer

            return ArchiveContainer(path)
        return FolderContainer(path)


def open_entry(artifact_id: str) -> Container:
    """Open the entry with this id in the system-wide store or in this user's store.

    Raises AOTC-I001 if neither has it, R006 if the entry holds another artifact, and R016 if others
    can change a store.
    """
    from aotc.trust.stores import entry_path

    container = FolderContainer(entry_path(artifact_id))
    try:
        found = hashlib.sha256(container.read(MANIFEST, MAX_JSON_BYTES)).hexdigest()
        if found != artifact_id:
            raise other_artifact(container.root, artifact_id, found)
    except BaseException:
        container.close()
        raise
    return container


def other_artifact(entry: Path, requested: str, found: str) -> AotcError:
    """AOTC-R006 for an entry that holds another artifact than its name says."""
    return AotcError(
        "AOTC-R006",
        "the entry of the store holds another artifact than its name says",
        where=str(entry),
        expected=requested,
        found=found,
    )
