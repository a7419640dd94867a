"""Unpacking a packed artifact into its folder."""

from __future__ import annotations

import hashlib
import os
import zlib
from io import FileIO
from pathlib import Path

from aotc.contract.codec.strict_json import MAX_JSON_BYTES
from aotc.contract.results.packing_reports import UnpackReport
from aotc.errors import AotcError
from aotc.files.artifact_layout import MANIFEST
from aotc.files.failures import cannot_read
from aotc.files.replacing import put_in_place
from aotc.files.work_folders import draft_path, prepare_output
from aotc.verification.container.archive_container import ArchiveContainer
from aotc.verification.container.archive_structure import malformed
from aotc.verification.container.base import ArtifactFile, Container
from aotc.watching import BYTES, Progress, Reporter, Tally

_BUFFER_BYTES = 256 << 10
_FIX = "Choose another output with -o, or remove it; --force replaces only an artifact."


def unpack(
    archive: str | Path,
    folder: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> UnpackReport:
    """Write the files of a packed artifact into the new folder `folder`.

    With `force`, an existing artifact is replaced, but nothing else.
    The archive's structure and CRC-32s are checked, but no signature: `verify` has the same result
    for both forms.  The folder appears when it is complete.
    Raises I001, G008, G012, G015 and G039 for the archive; I017, I018 and I026 for the output.
    """
    place = Path(folder)
    prepare_output(place, folder=True, force=force, fix=_FIX)
    with ArchiveContainer(Path(archive)) as source:
        files = source.listing().files
        if MANIFEST not in files:
            raise AotcError(
                "AOTC-G015",
                "the archive is not an aotc artifact",
                where=str(archive),
                expected=f"a packed artifact with {MANIFEST}",
            )
        with draft_path(place) as draft:
            draft.mkdir()
            buffer = memoryview(bytearray(_BUFFER_BYTES))
            tally = Tally(sum(files.values()), BYTES)
            with Reporter(progress).counting("unpack", place.name, tally):
                for path in files:
                    _write(source, path, draft / path, buffer, tally)
            identity = hashlib.sha256(source.read(MANIFEST, MAX_JSON_BYTES)).hexdigest()
            put_in_place(draft, place, force=force, fix=_FIX)
    return UnpackReport(
        archive=str(archive),
        artifact=str(place),
        artifact_id=identity,
        files=len(files),
        bytes=sum(files.values()),
    )


def _write(source: Container, path: str, target: Path, buffer: memoryview, tally: Tally) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    crc32 = done = 0
    with source.open(path) as file, FileIO(os.open(target, flags, 0o666), "wb") as output:
        while count := _read(file, buffer, path):
            part = buffer[:count]
            crc32 = zlib.crc32(part, crc32)
            done += count
            tally.add(count)
            while part:
                part = part[output.write(part) :]
        if done != file.size or crc32 != file.crc32:
            raise malformed(
                "the bytes of a file do not have the CRC-32 that the archive states", path
            )


def _read(file: ArtifactFile, buffer: memoryview, path: str) -> int:
    # The caller treats an OSError as one of writing.
    try:
        return file.readinto(buffer) or 0
    except OSError as error:
        raise cannot_read(error, "the archive cannot be read", path) from None
