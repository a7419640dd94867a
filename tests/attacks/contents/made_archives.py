"""Zips made field by field: a good one as `aotc pack` writes it, or one with any fault.

It shares no code with the packer, so that equal bytes prove something about both.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ALIGNMENT = 4096
MODE = 0o100644 << 16


@dataclass
class Entry:
    """A file, and the fields of its two headers that differ from what they should be.

    `raw` are the stored bytes instead of `data`; `after` follow them.
    """

    name: bytes
    data: bytes = b""
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    after: bytes = b""


def good() -> list[Entry]:
    """The files of what looks like an artifact."""
    return [
        Entry(b"attestations/oms.sigstore.json", b"{}"),
        Entry(b"payload/aotc.json", b'{"schema":"aotc.manifest/1.0"}'),
        Entry(b"payload/model/model.onnx", b"\x08\x09" * 3000),
    ]


def build(
    entries: Sequence[Entry],
    *,
    prefix: bytes = b"",
    before_directory: bytes = b"",
    before_end: bytes = b"",
    zip64_end: bytes = b"",
    after: bytes = b"",
    **end: Any,
) -> bytes:
    """The bytes of a zip; `end` are fields of the end record."""
    out = bytearray(prefix)
    directory = bytearray()
    for entry in entries:
        offset = len(out)
        out += local_header(entry, offset)
        out += (entry.data if entry.raw is None else entry.raw) + entry.after
        directory += central_record(entry, offset)
    out += before_directory
    start = len(out)
    out += directory + before_end + zip64_end
    return bytes(out) + end_record(len(entries), len(directory), start, **end) + after


def local_header(entry: Entry, offset: int) -> bytes:
    """A local header whose data is aligned, unless `extra` is given."""
    get = entry.local.get
    name: bytes = get("name", entry.name)
    used = offset + 30 + len(name) + 6
    padding = -used % ALIGNMENT
    extra: bytes = get("extra", struct.pack("<3H", 0xD935, 2 + padding, 4096) + bytes(padding))
    return (
        struct.pack(
            "<4s5H3L2H",
            get("signature", b"PK\3\4"),
            get("needed", 10),
            get("flags", 0x800),
            get("method", 0),
            get("time", 0),
            get("date", 33),
            get("crc", zlib.crc32(entry.data)),
            get("packed", len(entry.data)),
            get("size", len(entry.data)),
            get("name_length", len(name)),
            len(extra),
        )
        + name
        + extra
    )


def central_record(entry: Entry, offset: int) -> bytes:
    """A record of the directory."""
    get = entry.central.get
    name: bytes = get("name", entry.name)
    extra: bytes = get("extra", b"")
    comment: bytes = get("comment", b"")
    return (
        struct.pack(
            "<4s6H3L5H2L",
            get("signature", b"PK\1\2"),
            get("made_by", 3 << 8 | 45),
            get("needed", 10),
            get("flags", 0x800),
            get("method", 0),
            get("time", 0),
            get("date", 33),
            get("crc", zlib.crc32(entry.data)),
            get("packed", len(entry.data)),
            get("size", len(entry.data)),
            get("name_length", len(name)),
            len(extra),
            len(comment),
            get("disk", 0),
            get("internal", 0),
            get("external", MODE),
            get("offset", offset),
        )
        + name
        + extra
        + comment
    )


def end_record(count: int, size: int, start: int, /, **fields: Any) -> bytes:
    """The end record, with its comment."""
    comment: bytes = fields.get("comment", b"")
    return (
        struct.pack(
            "<4s4H2LH",
            fields.get("signature", b"PK\5\6"),
            fields.get("disk", 0),
            fields.get("directory_disk", 0),
            fields.get("here", fields.get("count", count)),
            fields.get("count", count),
            fields.get("size", size),
            fields.get("start", start),
            fields.get("comment_length", len(comment)),
        )
        + comment
    )


def zip64_records(count: int, size: int, start: int, end: int) -> bytes:
    """A zip64 end record and its locator; `end` is where the record lies."""
    return struct.pack(
        "<4sQ2H2L4Q", b"PK\6\6", 44, 3 << 8 | 45, 45, 0, 0, count, count, size, start
    ) + struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
