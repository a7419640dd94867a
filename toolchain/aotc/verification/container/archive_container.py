"""An artifact in its packed form, read in place through one descriptor."""

from __future__ import annotations

import errno
import os
import stat
import threading
import zlib
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.errors import AotcError
from aotc.files.failures import cannot_read
from aotc.verification.container import archive_structure
from aotc.verification.container.base import READ_FILE, Container, Listing, special_file_refusal

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ArchiveContainer(Container):
    """A packed artifact, with the methods of a folder.

    The file is opened once, never through a link; all reads are at offsets in that descriptor,
    so that threads share it.  Its structure is checked here, once; contents are what digests
    are for.
    """

    def __init__(self, root: Path) -> None:
        """Raises I001 where there is nothing to read, G015 where it is nothing packed.

        G008 where the path is a link or something special, or the file has other links; and
        what `archive_structure.read_files` raises.
        """
        self.root = root
        self._guard = threading.Lock()
        self._descriptor: int | None = _opened(root)
        try:
            size = _plain_size(self._descriptor, root)
            if not archive_structure.looks_packed(self._read_at, size):
                raise AotcError(
                    "AOTC-G015", "the path is neither a folder nor packed", where=str(root)
                )
            files = archive_structure.read_files(self._read_at, size)
        except AotcError as error:
            self.close()
            error.where = error.where or str(root)
            raise
        except OSError as error:
            self.close()
            raise _unreadable(error, root) from None
        self._files = {file.name: file for file in files}

    def listing(self, folder: str = "") -> Listing:
        """Everything below `folder`; a packed artifact with a problem was not opened."""
        start = f"{folder}/" if folder else ""
        files = {path: file.size for path, file in self._files.items() if path.startswith(start)}
        folders = set()
        for path in files:
            while "/" in path[len(start) :]:
                path = path.rpartition("/")[0]
                folders.add(path)
        return Listing(files, frozenset(folders), ())

    def open(self, path: str) -> ArchiveMember:
        """A file, to be read at any place; raises G006 where it is missing."""
        file = self._files.get(path)
        if file is None:
            raise AotcError("AOTC-G006", "a file of the artifact is missing", where=path)
        return ArchiveMember(self, file.data, file.size, file.crc32)

    def read(self, path: str, limit: int) -> bytes:
        """A small file's bytes; raises what `open` does, G012 beyond `limit`, G039 on its CRC."""
        data = super().read(path, limit)
        file = self._files[path]
        if len(data) != file.size or zlib.crc32(data) != file.crc32:
            raise archive_structure.malformed(
                "the bytes of a file do not have the CRC-32 that the archive states",
                path,
                f"{file.size} bytes, {file.crc32:08x}",
                f"{len(data)} bytes, {zlib.crc32(data):08x}",
            )
        return data

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from the file at `offset`; how many bytes there were."""
        if self._descriptor is None:
            raise ValueError("the archive is closed")
        if hasattr(os, "preadv"):
            return os.preadv(self._descriptor, [buffer], offset)
        with self._guard:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read_at(self, offset: int, length: int) -> bytes:
        buffer = bytearray(length)
        view, done = memoryview(buffer), 0
        while done < length:
            count = self.read_into(view[done:], offset + done)
            if not count:
                break
            done += count
        return bytes(view[:done])


class ArchiveMember(RawIOBase):
    """One file of a packed artifact.  `fileno` raises, as for all that is no file by itself."""

    def __init__(self, container: ArchiveContainer, start: int, size: int, crc32: int) -> None:
        self.size = size
        self.crc32: int | None = crc32
        self._container = container
        self._start = start
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Where the next read begins from now on, in bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as a read gives; 0 at the end."""
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self.size - self._position)]
        count = self._container.read_into(view, self._start + self._position) if view else 0
        self._position += count
        return count


def is_packed(path: Path) -> bool:
    """Whether what is at `path` is a file that begins or ends as a packed artifact does."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size

            def read_at(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            return archive_structure.looks_packed(read_at, size)
    except OSError:
        return False


def _opened(root: Path) -> int:
    try:
        return os.open(root, READ_FILE)
    except OSError as error:
        raise _unreadable(error, root) from None


def _plain_size(descriptor: int, root: Path) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise AotcError("AOTC-G015", "the path is a folder, and not packed", where=str(root))
    problem = special_file_refusal(status, str(root))
    if problem is not None:
        raise problem
    return status.st_size


def _unreadable(error: OSError, root: Path) -> AotcError:
    if error.errno in (errno.ELOOP, errno.ENXIO):
        return AotcError(
            "AOTC-G008",
            "a packed artifact must be a plain file of its own",
            where=str(root),
            expected="a plain file with one link",
            found="a link or special file",
        )
    return cannot_read(error, "cannot read the artifact", str(root))
