"""The packed form of an artifact: which bytes a `NAME.aotc.zip` holds, and where.

It is a zip file (PKWARE's APPNOTE.TXT 6.3.10) in which every byte beside the files' own follows
from their names, sizes and CRC-32s.  So a reader need not tell harmless variations from tricks:
it makes these bytes again and compares.

    of each file, in the order of the names' UTF-8:
      local header     version needed 1.0 (4.5 with zip64), flags 0x0800 (the name is UTF-8),
                       stored, 1980-01-01 00:00, CRC-32, both sizes, the name
        extra 0x0001   zip64: both sizes; only in a file of 2^32 - 1 bytes or more
        extra 0xd935   alignment: 4096 in two bytes, then as few zero bytes as put what follows
                       at a multiple of 4096
      the file's bytes
    central directory, a record a file in the same order: made by Unix 4.5, mode 0100644, the
                       fields of the local header, its offset
        extra 0x0001   zip64: both sizes as above, and the offset from 2^32 - 1 on
    zip64 end record and locator, only where the directory begins at 2^32 - 1 or later
    end record without a comment; it is the last of the file

There are no folders in it, no comments, no other extra fields.  Paths begin at the artifact's
folder: `payload/aotc.json`.  0xd935 is the field that Android's packages align files by.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Final, get_args

from aotc.contract.codec.parsing import Pattern
from aotc.contract.manifest.payload_files import PayloadPath
from aotc.records import record

SUFFIX: Final = ".zip"
ALIGNMENT: Final = 4096
MAX_NAME_BYTES: Final = 1024

LOCAL: Final = struct.Struct("<4s5H3L2H")
CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
END: Final = struct.Struct("<4s4H2LH")
ZIP64_END: Final = struct.Struct("<4sQ2H2L4Q")
ZIP64_LOCATOR: Final = struct.Struct("<4sLQL")

LOCAL_SIGNATURE: Final = b"PK\x03\x04"
CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
END_SIGNATURE: Final = b"PK\x05\x06"
ZIP64_SIGNATURE: Final = b"PK\x06\x06"
# In a field of four bytes: the value stands in the zip64 field or record.
ELSEWHERE: Final = 0xFFFFFFFF
# The mode stands in the upper half; what file systems of DOS would say is nothing.
ATTRIBUTES: Final = 0o100644 << 16

_ZIP64 = 0x0001
_ALIGN = 0xD935
_NEEDED, _NEEDED_ZIP64 = 10, 45
_MADE_BY = 3 << 8 | 45
_UTF8_NAME = 0x0800
_STORED = 0
_TIME, _DATE = 0, 1 << 5 | 1
_EXTRA = struct.Struct("<2H")
_ALIGN_FIELD = struct.Struct("<3H")

_COMMON = ("version needed", "flags", "method", "time", "date", "CRC-32")
_SIZES = ("compressed size", "size", "length of the name", "length of the extra fields")
LOCAL_FIELDS: Final = ("signature", *_COMMON, *_SIZES)
CENTRAL_FIELDS: Final = (
    "signature",
    "version made by",
    *_COMMON,
    *_SIZES,
    "length of the comment",
    "disk",
    "internal attributes",
    "external attributes",
    "offset",
)
END_FIELDS: Final = (
    "signature",
    "disk",
    "disk of the directory",
    "records on this disk",
    "records",
    "size of the directory",
    "offset of the directory",
    "length of the comment",
)


@record(kw_only=False)
class StoredFile:
    """One file of a packed artifact; `header` and `data` are offsets in bytes."""

    name: str
    size: int
    crc32: int
    header: int
    data: int


def data_offset(name: bytes, size: int, header: int) -> int:
    """Where the bytes of a file lie whose local header begins at `header`."""
    least = header + LOCAL.size + len(name) + len(_sizes64(size)) + _ALIGN_FIELD.size
    return -(-least // ALIGNMENT) * ALIGNMENT


def local_header(name: bytes, size: int, crc32: int, header: int) -> bytes:
    """All that precedes the bytes of a file, at `header`; the name in UTF-8."""
    zip64 = _sizes64(size)
    data = data_offset(name, size, header)
    padding = data - header - LOCAL.size - len(name) - len(zip64) - _ALIGN_FIELD.size
    extra = zip64 + _ALIGN_FIELD.pack(_ALIGN, 2 + padding, ALIGNMENT) + bytes(padding)
    fields = _common(name, size, crc32, header, len(extra))
    return LOCAL.pack(LOCAL_SIGNATURE, *fields) + name + extra


def central_record(name: bytes, size: int, crc32: int, header: int) -> bytes:
    """The record in the central directory of a file whose local header is at `header`."""
    zip64 = b""
    if size >= ELSEWHERE:
        zip64 += struct.pack("<2Q", size, size)
    if header >= ELSEWHERE:
        zip64 += struct.pack("<Q", header)
    extra = _EXTRA.pack(_ZIP64, len(zip64)) + zip64 if zip64 else b""
    fields = _common(name, size, crc32, header, len(extra))
    offset = min(header, ELSEWHERE)
    rest = (0, 0, 0, ATTRIBUTES, offset)
    return CENTRAL.pack(CENTRAL_SIGNATURE, _MADE_BY, *fields, *rest) + name + extra


def end_records(count: int, size: int, offset: int) -> bytes:
    """What follows a central directory of `count` records in `size` bytes at `offset`.

    `count` is below 2^16 - 1 and `size` below 2^32 - 1.
    """
    zip64 = b""
    if offset >= ELSEWHERE:
        zip64 = ZIP64_END.pack(
            ZIP64_SIGNATURE,
            ZIP64_END.size - 12,
            *(_MADE_BY, _NEEDED_ZIP64, 0, 0, count, count, size, offset),
        ) + ZIP64_LOCATOR.pack(b"PK\x06\x07", 0, offset + size, 1)
    stated = (0, 0, count, count, size, min(offset, ELSEWHERE), 0)
    return zip64 + END.pack(END_SIGNATURE, *stated)


def name_problem(name: str) -> str:
    """What is wrong with a path in a packed artifact, in words; empty where nothing is.

    A payload's own rule, and that no system takes the name for another one: Windows reads a
    colon as a drive or a stream, and drops dots and spaces that end a part.
    """
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        return "is not Unicode text"
    if len(encoded) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    if not _NAME.fullmatch(name):
        return "is not a relative path of plain parts"
    if ":" in name:
        return "holds a colon"
    if any(part[-1] in ". " for part in name.split("/")):
        return "has a part that ends in a dot or a space"
    return ""


def clashes(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths that some file system takes for one, in pairs: by case, by Unicode's normal forms.

    Folders on the way count too, and a file that is also a folder.
    """
    seen: dict[str, tuple[str, bool]] = {}
    given: set[str] = set()
    for name in names:
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            path, is_file = "/".join(parts[:depth]), depth == len(parts)
            known = seen.setdefault(_caseless(path), (path, is_file))
            if known != (path, is_file) or (is_file and name in given):
                yield known[0], path
        given.add(name)


def _caseless(path: str) -> str:
    """Canonical caseless matching, as Unicode's D145 defines it."""
    if path.isascii():
        return path.lower()
    from unicodedata import normalize

    return normalize("NFD", normalize("NFD", path).casefold())


def _sizes64(size: int) -> bytes:
    return _EXTRA.pack(_ZIP64, 16) + struct.pack("<2Q", size, size) if size >= ELSEWHERE else b""


def _common(name: bytes, size: int, crc32: int, header: int, extra: int) -> tuple[int, ...]:
    needed = _NEEDED_ZIP64 if max(size, header) >= ELSEWHERE else _NEEDED
    stated = min(size, ELSEWHERE)
    fixed = (needed, _UTF8_NAME, _STORED, _TIME, _DATE)
    return (*fixed, crc32, stated, stated, len(name), extra)


# The rule stands in the type, which records and schemas read.
_NAME = re.compile(next(n for n in get_args(PayloadPath) if isinstance(n, Pattern)).regex)
