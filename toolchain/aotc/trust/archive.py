"""A packed artifact, read in place, and the strict reader of its structure."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import RawIOBase
from pathlib import Path
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import open_plain
from aotc.base.records import record
from aotc.spec import packed_form
from aotc.spec.packed_form import CENTRAL, END, IN_ZIP64, MAX_NAME_BYTES, StoredFile
from aotc.trust.container import (
    MAX_DEPTH,
    MAX_ENTRIES,
    READ_FILE,
    Container,
    Listing,
    special_file_refusal,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A record of the directory has its fixed part, a name, and at most three numbers.
MAX_DIRECTORY_BYTES = MAX_ENTRIES * (CENTRAL.size + MAX_NAME_BYTES + 28)
_TAIL = packed_form.ZIP64_END.size + packed_form.ZIP64_LOCATOR.size + END.size
# A zip file of another kind: what PyTorch exports.
_PROGRAM: Final = ".pt2"
_LOOKED_AT: Final = 1 << 16
_UNIX = 3
# aotc writes no entries for folders.
_FIX_REPACK = "Unpack it with the program that made it, and use 'aotc pack' on the folder."

# Reads `length` bytes at `offset`, fewer at the end of the file.
ReadAt = Callable[[int, int], bytes]


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
            if not looks_packed(self._read_at, size):
                raise AotcError(
                    "AOTC-G015",
                    "the path is neither a folder nor a packed artifact",
                    where=str(root),
                )
            files = read_files(self._read_at, size)
        except AotcError as error:
            program = error.code == "AOTC-G039" and _is_program(self._read_at, size)
            self.close()
            error.where = error.where or str(root)
            if program:
                raise AotcError(
                    "AOTC-G015",
                    "this is an archive of PyTorch, not a packed artifact",
                    where=str(root),
                    fix=f"Build the program first: aotc build {root.name} -o {root.stem}.aotc",
                ) from None
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
            raise malformed(
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
        if path.suffix.lower() == _PROGRAM:
            return False
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size

            def read_at(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            return looks_packed(read_at, size)
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


# The strict reader of packed artifacts: the files of one, or why it is malformed.
#
# It accepts exactly the bytes that `spec.packed_form` defines. The end record gives the number
# of files and the place of the directory; the directory gives names, sizes and CRC-32s. From these
# every record is made again and compared, and every file must start where the one before it ends.
# Sizes that the file claims are checked against limits before anything is read or allocated.


@record(kw_only=False)
class _Record:
    """What a record of the directory states."""

    name: str
    size: int
    crc32: int
    header: int


def looks_packed(read_at: ReadAt, size: int) -> bool:
    """Whether a file begins or ends like a zip file."""
    return read_at(0, 4) == packed_form.LOCAL_SIGNATURE or (
        size >= END.size and read_at(size - END.size, 4) == packed_form.END_SIGNATURE
    )


def _is_program(read_at: ReadAt, size: int) -> bool:
    """Whether the last files of a zip file have names that PyTorch writes."""
    length = min(size, _LOOKED_AT)
    tail = read_at(size - length, length)
    return b"/.data/serialization_id" in tail or b"/archive_format" in tail


def read_files(read_at: ReadAt, size: int) -> tuple[StoredFile, ...]:
    """The files of a packed artifact of `size` bytes, sorted by name.

    Raises AOTC-G039 if a byte other than content differs from what it must be, G008 if a file is
    stated to be a link or a special file, and G012 if a limit is exceeded.
    """
    count, length, start = _read_end(read_at, size)
    records = tuple(_records(read_at(start, length), count))
    _check_names([record.name for record in records])
    files = tuple(_locate_files(records, start))
    for file in files:
        expected = packed_form.local_header(file.name.encode(), file.size, file.crc32, file.header)
        found = read_at(file.header, len(expected))
        if found != expected:
            raise malformed(
                "the local header of a file differs from the directory",
                file.name,
                *_difference(packed_form.LOCAL, packed_form.LOCAL_FIELDS, expected, found),
            )
    return files


def malformed(what: str, where: str = "", expected: str = "", found: str = "") -> AotcError:
    """AOTC-G039 for a malformed archive."""
    return AotcError("AOTC-G039", what, where=where, expected=expected, found=found)


def _read_end(read_at: ReadAt, size: int) -> tuple[int, int, int]:
    """The number of records, the size and the offset of the central directory."""
    tail = read_at(max(0, size - _TAIL), _TAIL)
    if len(tail) < END.size or tail[-END.size :][:4] != packed_form.END_SIGNATURE:
        raise malformed("the file does not end with an end record without a comment")
    *_, count, length, start, _ = END.unpack(tail[-END.size :])
    if start == IN_ZIP64 and tail.startswith(packed_form.ZIP64_SIGNATURE):
        if len(tail) < _TAIL:
            raise malformed("the file is too short for its end records")
        *_, count, length, start = packed_form.ZIP64_END.unpack_from(tail)
    if count > MAX_ENTRIES:
        raise _limit_exceeded(f"at most {MAX_ENTRIES} files", str(count))
    if length > MAX_DIRECTORY_BYTES:
        raise _limit_exceeded(f"a directory of at most {MAX_DIRECTORY_BYTES} bytes", str(length))
    if start + length > size:
        raise malformed(
            "the directory is not in the file",
            expected=f"{size} bytes in total",
            found=f"{start} + {length}",
        )
    expected = packed_form.end_records(count, length, start)
    found = tail[-len(expected) :]
    if found != expected:
        raise malformed(
            "the end record is wrong",
            "",
            *_difference(END, packed_form.END_FIELDS, expected[-END.size :], found[-END.size :]),
        )
    if start + length + len(expected) != size:
        raise malformed(
            "the directory does not end at the end record",
            expected=f"{size - len(expected)}",
            found=f"{start} + {length}",
        )
    return count, length, start


def _records(directory: bytes, count: int) -> Iterator[_Record]:
    place = 0
    for _ in range(count):
        record, length = _record(directory, place)
        yield record
        place += length
    if place != len(directory):
        raise malformed(
            "the directory is longer than its records",
            expected=f"{place} bytes",
            found=f"{len(directory)} bytes",
        )


def _record(directory: bytes, place: int) -> tuple[_Record, int]:
    """The record at the offset `place` of the directory, and its length."""
    if len(directory) - place < CENTRAL.size:
        raise malformed("the directory ends within a record")
    fields = CENTRAL.unpack_from(directory, place)
    made_by, crc32, size = fields[1], fields[7], fields[9]
    name_bytes, extra_bytes, attributes, header = fields[10], fields[11], fields[15], fields[16]
    if name_bytes > MAX_NAME_BYTES:
        raise _limit_exceeded(f"names of at most {MAX_NAME_BYTES} bytes", str(name_bytes))
    start = place + CENTRAL.size
    encoded = directory[start : start + name_bytes]
    try:
        name = encoded.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("a name is not UTF-8", repr(encoded)) from None
    kind = stat.S_IFMT(attributes >> 16)
    if made_by >> 8 == _UNIX and kind not in (0, stat.S_IFREG):
        raise AotcError(
            "AOTC-G008",
            "the archive has an entry that is not a regular file",
            where=repr(name),
            expected="a regular file",
            found=f"mode {attributes >> 16:07o}",
            fix=_FIX_REPACK if kind == stat.S_IFDIR else "Get the artifact from its builder again.",
        )
    extra = directory[start + name_bytes : start + name_bytes + extra_bytes]
    if size == IN_ZIP64 and len(extra) >= 12:
        size = unpack_from("<Q", extra, 4)[0]
    if header == IN_ZIP64 and len(extra) >= 12:
        header = unpack_from("<Q", extra, len(extra) - 8)[0]
    expected = packed_form.central_record(encoded, size, crc32, header)
    found = directory[place : place + len(expected)]
    if found != expected:
        raise malformed(
            "a record of the directory is wrong",
            repr(name),
            *_difference(CENTRAL, packed_form.CENTRAL_FIELDS, expected, found),
        )
    return _Record(name, size, crc32, header), len(expected)


def _check_names(names: Sequence[str]) -> None:
    folders = set()
    for name in names:
        problem = packed_form.name_problem(name)
        if problem:
            raise malformed(f"a name {problem}", repr(name))
        if name.count("/") > MAX_DEPTH:
            raise _limit_exceeded(f"folders {MAX_DEPTH} deep", repr(name))
        while "/" in name:
            name = name.rpartition("/")[0]
            folders.add(name)
    if len(names) + len(folders) > MAX_ENTRIES:
        raise _limit_exceeded(f"at most {MAX_ENTRIES} files and folders", "more")
    for one, other in packed_form.colliding_paths(names):
        raise malformed("two paths are the same on some file systems", repr(one), found=repr(other))
    # UTF-8 and code points have the same order.
    for one, other in itertools.pairwise(names):
        if one > other:
            raise malformed("the names are not sorted", repr(other))


def _locate_files(records: Sequence[_Record], end: int) -> Iterator[StoredFile]:
    """The files with their offsets: each after the one before it, and the directory last."""
    place = 0
    for entry in records:
        data = packed_form.data_offset(entry.name.encode(), entry.size, place)
        if entry.header != place or data + entry.size > end:
            raise malformed(
                "a file does not start where the one before it ends",
                entry.name,
                expected=f"offset {place}, {entry.size} bytes before {end}",
                found=f"offset {entry.header}",
            )
        yield StoredFile(entry.name, entry.size, entry.crc32, place, data)
        place = data + entry.size
    if place != end:
        raise malformed(
            "there are bytes between the last file and the directory",
            expected=f"offset {place}",
            found=f"offset {end}",
        )


def _difference(
    form: Struct, names: Sequence[str], expected: bytes, found: bytes
) -> tuple[str, str]:
    """The expected and the found value of the first field that differs."""
    if len(found) >= form.size:
        pairs = zip(names, form.unpack_from(expected), form.unpack_from(found), strict=True)
        for name, wanted, actual in pairs:
            if wanted != actual:
                return f"{name} {wanted!r}", repr(actual)
    return "the bytes that follow from name, size and CRC-32", "others"


def _limit_exceeded(expected: str, found: str) -> AotcError:
    return AotcError("AOTC-G012", "the archive exceeds the limits", expected=expected, found=found)
