"""The packed form of an artifact: which bytes a `NAME.aotc.zip` holds, and where.

It is a zip file (PKWARE's APPNOTE.TXT 6.3.10) in which every byte that is not content follows from
the files' names, sizes and CRC-32s.  So a reader need not tell harmless variations from attacks: it
makes these bytes again and compares.

    for each file, in the order of the names in UTF-8:
      local header     version needed 1.0 (4.5 with zip64), flags 0x0800 (the name is UTF-8),
                       stored, 1980-01-01 00:00, CRC-32, both sizes, the name
        extra 0x0001   zip64: both sizes; only for a file of 2^32 - 1 bytes or more
        extra 0xd935   alignment: 4096 in two bytes, then the fewest zero bytes that put the
                       content at a multiple of 4096
      the file's content
    central directory, one record per file in the same order: made by Unix 4.5, mode 0100644, the
                       fields of the local header, its offset
        extra 0x0001   zip64: both sizes as above, and offsets of 2^32 - 1 or more
    zip64 end record and locator, only if the directory begins at 2^32 - 1 or later
    end record without a comment, which ends the file

It has no folders, no comments and no other extra fields.  Paths start in the artifact's folder:
`payload/aotc.json`.  0xd935 is the field with which Android's packages align files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Final, get_args

from aotc.base.records import record
from aotc.spec.codec import Pattern
from aotc.spec.payload import PayloadPath

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
# In a field of four bytes: the value is in the zip64 field or record instead.
IN_ZIP64: Final = 0xFFFFFFFF
# The upper half is the Unix mode; the DOS attributes below it are zero.
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

# The rule is in the type, which records and schemas use.
_NAME = re.compile(next(n for n in get_args(PayloadPath) if isinstance(n, Pattern)).regex)


@record(kw_only=False)
class StoredFile:
    """One file of a packed artifact.

    `header` is the offset of its local header, and `data` of its content, in bytes.
    """

    name: str
    size: int
    crc32: int
    header: int
    data: int


def data_offset(name: bytes, size: int, header: int) -> int:
    """The offset of the content of a file whose local header is at offset `header`."""
    minimum = header + LOCAL.size + len(name) + len(_zip64_sizes(size)) + _ALIGN_FIELD.size
    return -(-minimum // ALIGNMENT) * ALIGNMENT


def local_header(name: bytes, size: int, crc32: int, header: int) -> bytes:
    """The bytes from a local header at offset `header` to the content; `name` is in UTF-8."""
    zip64 = _zip64_sizes(size)
    data = data_offset(name, size, header)
    padding = data - header - LOCAL.size - len(name) - len(zip64) - _ALIGN_FIELD.size
    extra = zip64 + _ALIGN_FIELD.pack(_ALIGN, 2 + padding, ALIGNMENT) + bytes(padding)
    fields = _common_fields(name, size, crc32, header, len(extra))
    return LOCAL.pack(LOCAL_SIGNATURE, *fields) + name + extra


def central_record(name: bytes, size: int, crc32: int, header: int) -> bytes:
    """The central directory's record of a file whose local header is at offset `header`."""
    zip64 = b""
    if size >= IN_ZIP64:
        zip64 += struct.pack("<2Q", size, size)
    if header >= IN_ZIP64:
        zip64 += struct.pack("<Q", header)
    extra = _EXTRA.pack(_ZIP64, len(zip64)) + zip64 if zip64 else b""
    fields = _common_fields(name, size, crc32, header, len(extra))
    offset = min(header, IN_ZIP64)
    rest = (0, 0, 0, ATTRIBUTES, offset)
    return CENTRAL.pack(CENTRAL_SIGNATURE, _MADE_BY, *fields, *rest) + name + extra


def end_records(count: int, size: int, offset: int) -> bytes:
    """The end of an archive with a central directory of `count` records, `size` bytes, at `offset`.

    `count` is below 2^16 - 1 and `size` below 2^32 - 1.
    """
    zip64 = b""
    if offset >= IN_ZIP64:
        zip64 = ZIP64_END.pack(
            ZIP64_SIGNATURE,
            ZIP64_END.size - 12,
            *(_MADE_BY, _NEEDED_ZIP64, 0, 0, count, count, size, offset),
        ) + ZIP64_LOCATOR.pack(b"PK\x06\x07", 0, offset + size, 1)
    stated = (0, 0, count, count, size, min(offset, IN_ZIP64), 0)
    return zip64 + END.pack(END_SIGNATURE, *stated)


def name_problem(name: str) -> str:
    """Why a packed artifact cannot hold a path: a phrase such as `holds a colon`, or empty.

    A path must be valid in a payload, and mean the same on every system: Windows reads a colon as a
    drive or a stream, and drops dots and spaces at the end of a part.
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


def colliding_paths(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of paths that are the same on some file system, by case or Unicode normal form.

    The folders of a path are compared too, and a path that is both a file and a folder is reported.
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


def _zip64_sizes(size: int) -> bytes:
    return _EXTRA.pack(_ZIP64, 16) + struct.pack("<2Q", size, size) if size >= IN_ZIP64 else b""


def _common_fields(name: bytes, size: int, crc32: int, header: int, extra: int) -> tuple[int, ...]:
    needed = _NEEDED_ZIP64 if max(size, header) >= IN_ZIP64 else _NEEDED
    stated = min(size, IN_ZIP64)
    fixed = (needed, _UTF8_NAME, _STORED, _TIME, _DATE)
    return (*fixed, crc32, stated, stated, len(name), extra)
