"""A packed artifact, read in place through one descriptor."""

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
    """A packed artifact as a container.

    The file is opened once, and not through a link.  All reads are at offsets of that descriptor,
    so threads can share it.  Its structure is checked once, when it is opened.
    """

    def __init__(self, root: Path) -> None:
        """Raises AOTC-I001 if it cannot be read, and G015 if it is not a packed artifact.

        Raises G008 if it is a link or a special file, or has several links, and what `read_files`
        raises.
        """
        self.root = root
        self._guard = threading.Lock()
        self._descriptor: int | None = _open_descriptor(root)
        try:
            size = _regular_size(self._descriptor, root)
            if not archive_structure.looks_packed(self._read_at, size):
                raise AotcError(
                    "AOTC-G015",
                    "the path is neither a folder nor a packed artifact",
                    where=str(root),
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
        """The files and folders below `folder`; there are no problems, or it was not opened."""
        start = f"{folder}/" if folder else ""
        files = {path: file.size for path, file in self._files.items() if path.startswith(start)}
        folders = set()
        for path in files:
            while "/" in path[len(start) :]:
                path = path.rpartition("/")[0]
                folders.add(path)
        return Listing(files, frozenset(folders), ())

    def open(self, path: str) -> ArchiveMember:
        """Open a file for reading at any offset; raises AOTC-G006 if it does not exist."""
        file = self._files.get(path)
        if file is None:
            raise AotcError("AOTC-G006", "a file of the artifact is missing", where=path)
        return ArchiveMember(self, file.data, file.size, file.crc32)

    def read(self, path: str, limit: int) -> bytes:
        """The bytes of a small file.

        Raises what `open` does, AOTC-G012 if it is larger than `limit`, and G039 if its CRC-32 is
        wrong.
        """
        data = super().read(path, limit)
        file = self._files[path]
        if len(data) != file.size or zlib.crc32(data) != file.crc32:
            raise archive_structure.malformed(
                "a file does not have the CRC-32 that the archive states",
                path,
                f"{file.size} bytes, {file.crc32:08x}",
                f"{len(data)} bytes, {zlib.crc32(data):08x}",
            )
        return data

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from the archive at `offset`; returns the number of bytes."""
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
    """One file of a packed artifact; it has no descriptor, so `fileno` raises OSError."""

    def __init__(self, container: ArchiveContainer, start: int, size: int, crc32: int) -> None:
        self.size = size
        self.crc32: int | None = crc32
        self._container = container
        self._start = start
        self._position = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position of the next read, in bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer`; returns the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self.size - self._position)]
        count = self._container.read_into(view, self._start + self._position) if view else 0
        self._position += count
        return count


def is_packed(path: Path) -> bool:
    """Whether `path` is a file that begins or ends like a packed artifact."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size

            def read_at(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            return archive_structure.looks_packed(read_at, size)
    except OSError:
        return False


def _open_descriptor(root: Path) -> int:
    try:
        return os.open(root, READ_FILE)
    except OSError as error:
        raise _unreadable(error, root) from None


def _regular_size(descriptor: int, root: Path) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise AotcError("AOTC-G015", "the path is a folder, not a packed artifact", where=str(root))
    problem = special_file_refusal(status, str(root))
    if problem is not None:
        raise problem
    return status.st_size


def _unreadable(error: OSError, root: Path) -> AotcError:
    if error.errno in (errno.ELOOP, errno.ENXIO):
        return AotcError(
            "AOTC-G008",
            "a packed artifact must be a regular file with one link",
            where=str(root),
            expected="a regular file with one link",
            found="a link or special file",
        )
    return cannot_read(error, "cannot read the artifact", str(root))
