"""Archives that are not compressed, as PyTorch writes them: a strict reader of their structure.

Two readers of one ZIP archive may find different files in it, by which of its lists they follow.
This one follows all of them, and refuses what they do not agree on: each record of the directory
has its local header, each local header its record, every byte that is neither belongs to a file,
and no two files have one name.  A file that is not compressed is no larger than what was read, so
there is nothing that could grow.

The layout is PKWARE's APPNOTE.TXT 6.3.10.  PyTorch's writer states sizes and CRC-32 behind a file
(a data descriptor) and aligns files by an extra field; Python's writer states them before it.
"""

from __future__ import annotations

import io
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Final, NamedTuple, NoReturn

from aotc.base.errors import AotcError
from aotc.spec import packed_form
from aotc.spec.packed_form import CENTRAL, END, IN_ZIP64, LOCAL, ZIP64_END, ZIP64_LOCATOR

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# What a list without wide fields can hold, which archives that are written anew have.
MAX_ENTRIES: Final = 65_534
MAX_NAME_BYTES: Final = 1024
_MAX_DIRECTORY: Final = 64 << 20
_MAX_DEPTH: Final = 8
_BLOCK: Final = 1 << 20

_ZIP64: Final = 0x0001
_DESCRIBED: Final = 0x0008
_UTF8: Final = 0x0800
_UNIX: Final = 3
# With and without a signature, of 4 and of 8 bytes for each size.
_DESCRIPTOR_BYTES: Final = (12, 16, 20, 24)
_DESCRIPTOR: Final = b"PK\x07\x08"


class Entry(NamedTuple):
    """One file of an archive: its name, and where its bytes are."""

    name: str
    start: int
    size: int
    crc32: int


class _Stated(NamedTuple):
    """What the directory says of a file, and where its local header is."""

    name: str
    size: int
    crc32: int
    flags: int
    header: int


def read_entries(file: IO[bytes]) -> tuple[Entry, ...]:
    """The files of an archive in the order of their bytes; nothing of them is read.

    Raises AOTC-I130 for what is compressed, encrypted, linked, doubled, overlapping, hidden or cut
    off, for names that lead out of a folder, and where a limit is exceeded.
    """
    size = file.seek(0, io.SEEK_END)
    count, length, start = _read_end(file, size)
    stated = sorted(_directory(_read(file, start, length), count), key=lambda each: each.header)
    _check_names([each.name for each in stated])
    return tuple(_located(file, stated, start))


def read_entry(file: IO[bytes], entry: Entry, limit: int) -> bytes:
    """The bytes of a small file; raises AOTC-I130 beyond `limit`, or where its CRC-32 is wrong."""
    if entry.size > limit:
        _refuse("a file in it is too large", entry.name, f"at most {limit} bytes", f"{entry.size}")
    data = _read(file, entry.start, entry.size)
    _require_crc(entry, zlib.crc32(data))
    return data


def entry_sha256(file: IO[bytes], entry: Entry) -> str:
    """The sha256 (hex) of a file in an archive; raises AOTC-I130 where its CRC-32 is wrong."""
    import hashlib

    digest, crc32, left = hashlib.sha256(), 0, entry.size
    buffer = memoryview(bytearray(_BLOCK))
    file.seek(entry.start)
    while left:
        block = buffer[: min(left, _BLOCK)]
        got = file.readinto(block)  # type: ignore[attr-defined]
        if not got:
            _refuse("it is cut off", entry.name)
        digest.update(block[:got])
        crc32 = zlib.crc32(block[:got], crc32)
        left -= got
    _require_crc(entry, crc32)
    return digest.hexdigest()


class Rewritten(io.RawIOBase):
    """An archive as it is written anew: the bytes of some files, and parts of another archive.

    Nothing is copied: parts are read from `source`, at the places that were checked, when they are
    asked for.  Its reader meets no structure but what is made here.
    """

    def __init__(
        self, source: IO[bytes], files: Mapping[str, bytes], kept: Mapping[str, Entry]
    ) -> None:
        """`files` and `kept` are by the names that they have in this archive."""
        self._source = source
        self._parts: list[tuple[int, int, bytes | Entry]] = []
        self._position = self._end = 0
        directory: list[bytes] = []
        parts: dict[str, bytes | Entry] = {**files, **kept}
        for name, content in parts.items():
            size = content.size if isinstance(content, Entry) else len(content)
            crc32 = content.crc32 if isinstance(content, Entry) else zlib.crc32(content)
            stated = (name.encode(), size, crc32, self._end)
            directory.append(packed_form.central_record(*stated))
            self._add(packed_form.local_header(*stated))
            self._add(content)
        start = self._end
        self._add(b"".join(directory))
        self._add(packed_form.end_records(len(directory), self._end - start, start))

    def _add(self, part: bytes | Entry) -> None:
        size = part.size if isinstance(part, Entry) else len(part)
        if size:
            self._parts.append((self._end, size, part))
        self._end += size

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position of the next read, in bytes."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer`; returns the number of bytes, 0 at the end."""
        import bisect

        view, done = memoryview(buffer).cast("B"), 0
        at = bisect.bisect_right(self._parts, self._position, key=lambda part: part[0]) - 1
        while done < len(view) and 0 <= at < len(self._parts):
            start, size, part = self._parts[at]
            skipped = self._position - start
            length = min(size - skipped, len(view) - done)
            if length <= 0:
                break
            if isinstance(part, Entry):
                view[done : done + length] = _read(self._source, part.start + skipped, length)
            else:
                view[done : done + length] = part[skipped : skipped + length]
            done += length
            self._position += length
            at += 1
        return done


def _refuse(what: str, where: str = "", expected: str = "", found: str = "") -> NoReturn:
    raise AotcError(
        "AOTC-I130",
        f"the archive is not as PyTorch writes one: {what}",
        where=where,
        expected=expected,
        found=found,
    )


def _read(file: IO[bytes], start: int, length: int) -> bytes:
    file.seek(start)
    data = file.read(length)
    if len(data) != length:
        _refuse("it is cut off", found=f"{len(data)} of {length} bytes at {start}")
    return data


def _require_crc(entry: Entry, crc32: int) -> None:
    if crc32 != entry.crc32:
        _refuse(
            "a file in it is damaged",
            entry.name,
            f"CRC-32 {entry.crc32:08x}",
            f"{crc32:08x}",
        )


def _read_end(file: IO[bytes], size: int) -> tuple[int, int, int]:
    """The number of records in the directory, its bytes, and where it begins."""
    if size < END.size:
        _refuse("it is cut off")
    end = size - END.size
    signature, disk, first, here, count, length, start, comment = END.unpack(
        _read(file, end, END.size)
    )
    if signature != packed_form.END_SIGNATURE or comment:
        _refuse("it does not end with the list of its files")
    locator = end - ZIP64_LOCATOR.size
    if locator >= ZIP64_END.size and _read(file, locator, 4) == b"PK\x06\x07":
        end = locator - ZIP64_END.size
        _, first, place, disks = ZIP64_LOCATOR.unpack(_read(file, locator, ZIP64_LOCATOR.size))
        wide = ZIP64_END.unpack(_read(file, end, ZIP64_END.size))
        if (place, disks) != (end, 1) or wide[:2] != (packed_form.ZIP64_SIGNATURE, 44):
            _refuse("it has two lists of its files")
        # What the short record states must be the same, or be left to the long one.
        for short, long, full in zip(
            (disk, here, count, length, start),
            (wide[4], wide[6], wide[7], wide[8], wide[9]),
            (0xFFFF, 0xFFFF, 0xFFFF, IN_ZIP64, IN_ZIP64),
            strict=True,
        ):
            if short not in (long, full):
                _refuse("it has two lists of its files")
        disk, here, count, length, start = wide[4], wide[6], wide[7], wide[8], wide[9]
    if disk or first or here != count:
        _refuse("it is one of several parts")
    if count > MAX_ENTRIES or length > _MAX_DIRECTORY:
        _refuse("it holds too many files", expected=f"at most {MAX_ENTRIES}", found=str(count))
    if start + length != end:
        _refuse(
            "the list of its files is not where it says",
            expected=f"an end at {end}",
            found=f"{start} + {length}",
        )
    return count, length, start


def _directory(data: bytes, count: int) -> Iterator[_Stated]:
    place = 0
    for _ in range(count):
        if len(data) - place < CENTRAL.size:
            _refuse("the list of its files is cut off")
        fields = CENTRAL.unpack_from(data, place)
        signature, made_by, _, flags, method = fields[:5]
        crc32, packed, size, name_bytes, extra_bytes, comment_bytes, disk = fields[7:14]
        attributes, header = fields[15:]
        place += CENTRAL.size
        extra = place + name_bytes
        after = extra + extra_bytes + comment_bytes
        if signature != packed_form.CENTRAL_SIGNATURE or after > len(data) or disk:
            _refuse("the list of its files is damaged")
        name = _name(data[place:extra])
        if comment_bytes:
            _refuse("a file in it has a comment", name)
        size, packed, header = _wide(
            data[extra : extra + extra_bytes], name, (size, packed, header)
        )
        if method or packed != size:
            _refuse("a file in it is compressed", name, f"{size} bytes", f"{packed} bytes")
        if flags & ~(_UTF8 | _DESCRIBED):
            _refuse("a file in it is encrypted or patched", name, found=f"flags {flags:#06x}")
        kind = stat.S_IFMT(attributes >> 16)
        if name.endswith("/") or (made_by >> 8 == _UNIX and kind not in (0, stat.S_IFREG)):
            _refuse("an entry of it is no file, but a link or a folder", name)
        yield _Stated(name, size, crc32, flags, header)
        place = after
    if place != len(data):
        _refuse("the list of its files is longer than it says")


def _name(data: bytes) -> str:
    if not 0 < len(data) <= MAX_NAME_BYTES:
        _refuse("a name in it is too long or empty", found=f"{len(data)} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        _refuse("a name in it is not UTF-8", repr(data))


def _wide(extra: bytes, name: str, values: tuple[int, int, int]) -> tuple[int, int, int]:
    """Sizes and offset, those of them that a record leaves to its zip64 field taken from there."""
    place, found = 0, b""
    while place < len(extra):
        if len(extra) - place < 4:
            _refuse("the extra fields of a file are damaged", name)
        kind, length = struct.unpack_from("<2H", extra, place)
        place += 4 + length
        if place > len(extra) or (kind == _ZIP64 and found):
            _refuse("the extra fields of a file are damaged", name)
        if kind == _ZIP64:
            found = extra[place - length : place]
    wanted = sum(value == IN_ZIP64 for value in values)
    # Some writers state all three, whether they are needed or not.
    if len(found) not in {8 * wanted, 24} or (not wanted and found):
        _refuse("the sizes of a file are stated twice", name)
    every = len(found) == 24
    rest = iter(struct.unpack(f"<{len(found) // 8}Q", found))
    read = []
    for value in values:
        stated = next(rest) if every or value == IN_ZIP64 else value
        if stated != value and value != IN_ZIP64:
            _refuse("the sizes of a file are stated twice", name)
        read.append(stated)
    size, packed, header = read
    return size, packed, header


def _check_names(names: list[str]) -> None:
    for name in names:
        problem = packed_form.name_problem(name)
        if problem or name.count("/") > _MAX_DEPTH:
            _refuse(f"a name in it {problem or 'is too deep'}", repr(name))
    for one, other in packed_form.colliding_paths(names):
        _refuse("two files in it have one name", repr(one), found=repr(other))


def _located(file: IO[bytes], stated: list[_Stated], end: int) -> Iterator[Entry]:
    """Each file where its local header says, which says what the directory does."""
    place = 0
    for each in stated:
        if each.header != place or end - place < LOCAL.size:
            _refuse(
                "there is something between its files",
                each.name,
                f"its header at {place}",
                str(each.header),
            )
        fields = LOCAL.unpack(_read(file, place, LOCAL.size))
        signature, _, flags, method, _, _, crc32, packed, size, name_bytes, extra_bytes = fields
        raw = _read(file, place + LOCAL.size, name_bytes + extra_bytes)
        described = bool(flags & _DESCRIBED)
        size, packed, _ = _wide(raw[name_bytes:], each.name, (size, packed, 0))
        found = (signature, raw[:name_bytes], flags, method, crc32, size, packed)
        known = (packed_form.LOCAL_SIGNATURE, each.name.encode(), each.flags, 0)
        if found != (*known, each.crc32, each.size, each.size) and not (
            described and found == (*known, 0, 0, 0)
        ):
            _refuse("a file in it is stated in two ways", each.name)
        start = place + LOCAL.size + len(raw)
        place = start + each.size
        if place > end:
            _refuse("a file in it is cut off", each.name)
        if described:
            place += _descriptor_bytes(file, place, each, end)
        yield Entry(each.name, start, each.size, each.crc32)
    if place != end:
        _refuse("there is something between its files", found=f"{end - place} bytes at {place}")


def _descriptor_bytes(file: IO[bytes], place: int, stated: _Stated, end: int) -> int:
    """How long the descriptor behind a file is, which says the same as the directory."""
    data = _read(file, place, min(max(_DESCRIPTOR_BYTES), end - place))
    for length in _DESCRIPTOR_BYTES:
        signed = length % 8 == 0
        form = "<3L" if length < 20 else "<L2Q"
        expected = (_DESCRIPTOR if signed else b"") + _packed(form, stated)
        if expected and data[:length] == expected and len(expected) == length:
            return length
    _refuse("a file in it is stated in two ways", stated.name)


def _packed(form: str, stated: _Stated) -> bytes:
    try:
        return struct.pack(form, stated.crc32, stated.size, stated.size)
    except struct.error:
        return b""
