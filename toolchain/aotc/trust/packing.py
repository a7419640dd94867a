"""Packing an artifact's folder into one file, reproducibly, and unpacking it."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_read
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.base.files.replacing import put_in_place
from aotc.base.files.work_folders import draft_path, prepare_output
from aotc.base.progress import BYTES, Progress, Reporter, Tally
from aotc.spec import packed_form
from aotc.spec.command_reports import PackReport, UnpackReport
from aotc.spec.json import MAX_JSON_BYTES
from aotc.spec.versions import artifact_path
from aotc.trust.archive import ArchiveContainer, malformed
from aotc.trust.container import ArtifactFile, Container, FolderContainer

# Small enough to stay in the second-level cache from the read to the write.
_BUFFER_BYTES = 256 << 10
_FIX = "Choose another output with -o, or remove it; --force replaces only an artifact."


def pack(
    artifact: str | Path,
    output: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> PackReport:
    """Write the artifact in the folder `artifact` to the file `output`, in the packed form.

    Nothing is verified: the file contains what the folder contains, and `verify` has the same
    result for both.  The output depends only on the files, and appears when it is complete.
    Raises I001 and G015 if there is no artifact's folder; G007, G008 and G012 for what no artifact
    may contain; I035 for what the packed form cannot contain, or if a file changes meanwhile; I017,
    I018 and I026 for the output.
    """
    place = Path(output)
    prepare_output(place, force=force)
    with FolderContainer(artifact_path(artifact)) as source, draft_path(place) as draft:
        sizes = _sizes(source)
        tally = Tally(sum(sizes.values()), BYTES)
        packed = _Packer(source, draft, tally)
        try:
            with Reporter(progress).counting("pack", place.name, tally):
                packed.write(sizes)
        finally:
            packed.close()
        put_in_place(draft, place, force=force)
    return PackReport(
        artifact=str(artifact),
        archive=str(place),
        artifact_id=packed.manifest.hexdigest(),
        files=len(sizes),
        bytes=packed.position,
    )


def _sizes(source: Container) -> dict[str, int]:
    """Sizes in bytes of all files by path, after checking that all can be packed."""
    listing = source.listing()
    if listing.problems:
        raise with_others(listing.problems)
    if MANIFEST not in listing.files:
        raise AotcError(
            "AOTC-G015",
            "the folder is not an aotc artifact",
            where=str(source.root),
            expected=f"a folder with {MANIFEST}",
        )
    empty = set(listing.folders)
    for path in listing.files:
        if not path.startswith((f"{PAYLOAD}/", f"{ATTESTATIONS}/")):
            raise _not_packable("a file belongs to neither payload nor attestations", path)
        problem = packed_form.name_problem(path)
        if problem:
            raise _not_packable(f"a name {problem}", repr(path))
        while "/" in path:
            path = path.rpartition("/")[0]
            empty.discard(path)
    if empty:
        raise _not_packable("a folder is empty", min(empty))
    for one, other in packed_form.colliding_paths(listing.files):
        raise _not_packable("two paths are the same on some file systems", repr(one), repr(other))
    return dict(sorted(listing.files.items()))


class _Packer:
    """A packed artifact while it is written; `position` is the offset of the next byte."""

    def __init__(self, source: Container, place: Path, tally: Tally) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._file = FileIO(os.open(place, flags, 0o666), "r+b")
        self._source = source
        self._tally = tally
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.position = 0
        self.manifest = hashlib.sha256()

    def write(self, sizes: Mapping[str, int]) -> None:
        """Write all files, the directory and the end records."""
        directory = bytearray()
        for name, size in sizes.items():
            encoded, header = name.encode(), self.position
            data = packed_form.data_offset(encoded, size, header)
            crc32 = self._copy(name, size, data)
            # The header contains the CRC-32, which is known only now.
            self._write(packed_form.local_header(encoded, size, crc32, header), header)
            directory += packed_form.central_record(encoded, size, crc32, header)
            self.position = data + size
        end = packed_form.end_records(len(sizes), len(directory), self.position)
        self._write(directory + end, self.position)
        self.position += len(directory) + len(end)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _copy(self, name: str, size: int, data: int) -> int:
        """Copy a file's bytes to the offset `data`; their CRC-32."""
        crc32 = done = 0
        with self._source.open(name) as file:
            while count := _read(file, self._buffer, "a file of the artifact", name):
                part = self._buffer[:count]
                crc32 = zlib.crc32(part, crc32)
                if name == MANIFEST:
                    self.manifest.update(part)
                if done + count <= size:
                    self._write(part, data + done)
                done += count
                self._tally.add(count)
        if done != size:
            raise _not_packable(
                "a file changed while it was packed", name, f"{done} bytes", f"{size}"
            )
        return crc32

    def _write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._file.seek(offset)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]


def _not_packable(what: str, where: str, found: str = "", expected: str = "") -> AotcError:
    return AotcError("AOTC-I035", what, where=where, expected=expected, found=found)


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
        while count := _read(file, buffer, "the archive", path):
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


def _read(file: ArtifactFile, buffer: memoryview, what: str, path: str) -> int:
    # The callers treat an OSError as one of writing.
    try:
        return file.readinto(buffer) or 0
    except OSError as error:
        raise cannot_read(error, f"{what} cannot be read", path) from None
