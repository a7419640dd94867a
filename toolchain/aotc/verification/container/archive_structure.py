"""The strict reader of packed artifacts: what is in one, or why it is none.

It accepts the bytes that `contract.packed_form` defines and no others.  The end record gives the
number of files and where the directory lies; the directory gives names, sizes and CRC-32s; from
those every record is made again and compared, and every file must begin where the one before it
ends.  Nothing is read or allocated by a claim that was not bounded first.
"""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable, Iterator, Sequence
from struct import Struct, unpack_from

from aotc.contract import packed_form
from aotc.contract.packed_form import CENTRAL, END, IN_ZIP64, MAX_NAME_BYTES, StoredFile
from aotc.errors import AotcError
from aotc.records import record
from aotc.verification.container.base import MAX_DEPTH, MAX_ENTRIES

# Of the directory's records: the name and at most three numbers beside what is fixed.
MAX_DIRECTORY_BYTES = MAX_ENTRIES * (CENTRAL.size + MAX_NAME_BYTES + 28)
_TAIL = packed_form.ZIP64_END.size + packed_form.ZIP64_LOCATOR.size + END.size
_UNIX = 3
# What aotc packs has no entries for folders.
_BY_ANOTHER = "Unpack it with the program that made it, and use 'aotc pack' on the folder."

# The bytes at an offset, of a length; fewer at the end.
ReadAt = Callable[[int, int], bytes]


@record(kw_only=False)
class _Record:
    """What a record of the directory claims."""

    name: str
    size: int
    crc32: int
    header: int


def looks_packed(read_at: ReadAt, size: int) -> bool:
    """Whether a file begins or ends as a zip does, so that it is to be refused as a bad one."""
    return read_at(0, 4) == packed_form.LOCAL_SIGNATURE or (
        size >= END.size and read_at(size - END.size, 4) == packed_form.END_SIGNATURE
    )


def read_files(read_at: ReadAt, size: int) -> tuple[StoredFile, ...]:
    """The files of a packed artifact of `size` bytes, sorted by name.

    Raises G039 where any byte beside the files' own is another than it must be, G008 where a
    file is claimed to be a link or something special, G012 beyond the limits.
    """
    count, length, start = _end(read_at, size)
    records = tuple(_records(read_at(start, length), count))
    _check_names([record.name for record in records])
    files = tuple(_placed(records, start))
    for file in files:
        expected = packed_form.local_header(file.name.encode(), file.size, file.crc32, file.header)
        found = read_at(file.header, len(expected))
        if found != expected:
            raise malformed(
                "the local header of a file differs from what the directory demands",
                file.name,
                *_difference(packed_form.LOCAL, packed_form.LOCAL_FIELDS, expected, found),
            )
    return files


def malformed(what: str, where: str = "", expected: str = "", found: str = "") -> AotcError:
    """A G039 refusal."""
    return AotcError("AOTC-G039", what, where=where, expected=expected, found=found)


def _end(read_at: ReadAt, size: int) -> tuple[int, int, int]:
    """Number of records, size and offset of the central directory."""
    tail = read_at(max(0, size - _TAIL), _TAIL)
    if len(tail) < END.size or tail[-END.size :][:4] != packed_form.END_SIGNATURE:
        raise malformed("the file does not end in an end record without a comment")
    *_, count, length, start, _ = END.unpack(tail[-END.size :])
    if start == IN_ZIP64 and tail.startswith(packed_form.ZIP64_SIGNATURE):
        if len(tail) < _TAIL:
            raise malformed("the file ends within its end records")
        *_, count, length, start = packed_form.ZIP64_END.unpack_from(tail)
    if count > MAX_ENTRIES:
        raise _excess(f"at most {MAX_ENTRIES} files", str(count))
    if length > MAX_DIRECTORY_BYTES:
        raise _excess(f"a directory of at most {MAX_DIRECTORY_BYTES} bytes", str(length))
    if start + length > size:
        raise malformed(
            "the directory does not lie in the file",
            expected=f"{size} bytes in all",
            found=f"{start} + {length}",
        )
    expected = packed_form.end_records(count, length, start)
    found = tail[-len(expected) :]
    if found != expected:
        raise malformed(
            "the end record is not as it must be",
            "",
            *_difference(END, packed_form.END_FIELDS, expected[-END.size :], found[-END.size :]),
        )
    if start + length + len(expected) != size:
        raise malformed(
            "the directory does not reach to the end record",
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
    """The record at `place` in the directory, and its length."""
    if len(directory) - place < CENTRAL.size:
        raise malformed("the directory ends within a record")
    fields = CENTRAL.unpack_from(directory, place)
    made_by, crc32, size = fields[1], fields[7], fields[9]
    name_bytes, extra_bytes, attributes, header = fields[10], fields[11], fields[15], fields[16]
    if name_bytes > MAX_NAME_BYTES:
        raise _excess(f"names of at most {MAX_NAME_BYTES} bytes", str(name_bytes))
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
            "the archive holds something that is no plain file",
            where=repr(name),
            expected="a plain file",
            found=f"mode {attributes >> 16:07o}",
            fix=_BY_ANOTHER if kind == stat.S_IFDIR else "Get the artifact from its builder again.",
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
            "a record of the directory is not as it must be",
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
            raise _excess(f"folders {MAX_DEPTH} deep", repr(name))
        while "/" in name:
            name = name.rpartition("/")[0]
            folders.add(name)
    if len(names) + len(folders) > MAX_ENTRIES:
        raise _excess(f"at most {MAX_ENTRIES} files and folders", "more")
    for one, other in packed_form.colliding_paths(names):
        raise malformed("two paths are one to some file systems", repr(one), found=repr(other))
    # Of UTF-8 and of code points the order is the same.
    for one, other in itertools.pairwise(names):
        if one > other:
            raise malformed("the names are not sorted", repr(other))


def _placed(records: Sequence[_Record], end: int) -> Iterator[StoredFile]:
    """Each file where it must lie: after the one before it, and the directory after the last."""
    place = 0
    for each in records:
        data = packed_form.data_offset(each.name.encode(), each.size, place)
        if each.header != place or data + each.size > end:
            raise malformed(
                "a file does not lie where the one before it ends",
                each.name,
                expected=f"offset {place}, {each.size} bytes before {end}",
                found=f"offset {each.header}",
            )
        yield StoredFile(each.name, each.size, each.crc32, place, data)
        place = data + each.size
    if place != end:
        raise malformed(
            "something lies between the last file and the directory",
            expected=f"offset {place}",
            found=f"offset {end}",
        )


def _difference(
    form: Struct, names: Sequence[str], expected: bytes, found: bytes
) -> tuple[str, str]:
    """What was expected and found in the first field that differs."""
    if len(found) >= form.size:
        pairs = zip(names, form.unpack_from(expected), form.unpack_from(found), strict=True)
        for name, wanted, had in pairs:
            if wanted != had:
                return f"{name} {wanted!r}", repr(had)
    return "the bytes that follow from name, size and CRC-32", "others"


def _excess(expected: str, found: str) -> AotcError:
    return AotcError("AOTC-G012", "the archive exceeds the limits", expected=expected, found=found)
