"""Opening an artifact: a folder, a packed artifact, or an entry of a store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_write, translated_errors
from aotc.base.files.folders import MANIFEST, PAYLOAD
from aotc.base.progress import Tally
from aotc.spec.codec import ParseError, Problem, decode
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.versions import (
    MANIFEST_SCHEMA,
    manifest_version,
    stated_id,
    stated_reference,
    unsupported_reason,
)
from aotc.trust.container import Container, FolderContainer
from aotc.trust.references import require_inside


def open_container(path: Path) -> Container:
    """Open the artifact at a path, the entry of an id, or that of a reference to a registry.

    `spec.versions` says which of them a path is.  Raises AOTC-I001 if there is nothing to read,
    G015 if it is neither a folder nor a packed artifact, G008, G012 and G039 for a packed artifact,
    I027 if it cannot be a path, what `open_entry` does for an id, and what `RegistryContainer` does
    for a reference.
    """
    reference = stated_reference(path)
    if reference is not None:
        from aotc.trust.registry_container import RegistryContainer

        return RegistryContainer(reference)
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


def read_manifest_bytes(container: Container, place: Path) -> bytes:
    """The content of aotc.json; raises G015 where the artifact at `place` has none."""
    try:
        return container.read(MANIFEST, MAX_JSON_BYTES)
    except AotcError as error:
        if error.code != "AOTC-G006":
            raise
        raise AotcError(
            "AOTC-G015", f"the artifact does not contain {MANIFEST}", where=str(place)
        ) from None


def identified(container: Container, place: Path) -> tuple[bytes, str]:
    """The content of aotc.json and its sha256, the artifact's id; raises as above."""
    content = read_manifest_bytes(container, place)
    return content, hashlib.sha256(content).hexdigest()


def read_manifest(content: bytes) -> Manifest:
    """aotc.json as a record; raises G009 with all problems, G010 for another major version."""
    try:
        data = strict_json(content)
        schema = data.get("schema") if isinstance(data, dict) else None
        version = manifest_version(schema) if isinstance(schema, str) else None
        ours = manifest_version(MANIFEST_SCHEMA) or (0, 0)
        if what := unsupported_reason(schema):
            raise AotcError(
                "AOTC-G010",
                what,
                where=MANIFEST,
                expected=f"{MANIFEST_SCHEMA.rpartition('.')[0]}.x",
                found=str(schema)[:100],
            )
        if version is None:
            raise ParseError([Problem("schema", f"is not like {MANIFEST_SCHEMA}")])
        return decode(Manifest, data, allow_unknown=version[1] > ours[1])
    except ParseError as error:
        raise with_others(
            AotcError("AOTC-G009", problem.what, where=f"{MANIFEST}: {problem.path or '(top)'}")
            for problem in error.problems
        ) from None


# Files out of an artifact's container, each with the digest that the manifest states.
#
# No signature is looked at: who made the artifact stays open, and what it says of its files does
# not.


_BUFFER: Final = 1 << 20


def copy_files(
    container: Container,
    manifest: Manifest,
    paths: Iterable[str],
    folder: Path,
    tally: Tally | None = None,
) -> None:
    """Copy payload files into `folder`, under their paths; `tally` counts their bytes.

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
                    if tally is not None:
                        tally.add(len(part))
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
