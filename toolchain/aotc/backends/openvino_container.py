"""The file form in which OpenVINO's plugin keeps compiled parts, as far as joining them needs it.

One session reads one such file, while each partition is compiled in a process of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aotc.errors import AotcError

# The plugin's container, as it writes it: "OVEP_BIN", then four 64-bit integers (version, size of
# the header, offset and size of a BSON document), the document, and the compiled parts, each at a
# multiple of 64 KiB; the document gives offset and size of each part by its name.
_MAGIC: Final = b"OVEP_BIN"
_HEADER: Final = "<8sQQQQ"
_ALIGN: Final = 1 << 16
_VERSION: Final = 1


def join_containers(containers: Sequence[bytes]) -> bytes:
    """One container with the parts of all; raises AOTC-P005 on a form that is not known."""
    parts: dict[str, bytes] = {}
    rest: dict[str, Any] = {}
    for data in containers:
        try:
            document, found = _opened(data)
        except (struct.error, ValueError, LookupError, TypeError) as error:
            raise _unknown(str(error)) from None
        rest = rest or document
        if parts.keys() & found.keys():
            raise _unknown("two partitions of one name")
        parts |= found
    size = struct.calcsize(_HEADER)
    # A name's entry takes its length and less than 64 bytes.
    start = _aligned(size + sum(len(name.encode()) + 64 for name in parts) + 1024)
    places: dict[str, Any] = {}
    end = start
    for name, part in parts.items():
        places[name] = {"data_offset": end, "size": len(part)}
        end = _aligned(end + len(part))
    text = _write_bson({**rest, "blob_metadata_map": places})
    result = bytearray(end)
    struct.pack_into(_HEADER, result, 0, _MAGIC, _VERSION, size, size, len(text))
    result[size : size + len(text)] = text
    for name, part in parts.items():
        start = places[name]["data_offset"]
        result[start : start + len(part)] = part
    return bytes(result)


def _opened(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document of a container, and its parts by name."""
    magic, version, _, offset, _ = struct.unpack_from(_HEADER, data)
    if magic != _MAGIC or version != _VERSION:
        raise _unknown(f"{magic!r} version {version}")
    document, _ = _read_bson(data, offset)
    parts = {}
    for name, place in document["blob_metadata_map"].items():
        start, size = place["data_offset"], place["size"]
        if start + size > len(data):
            raise _unknown(f"{len(data)} bytes")
        parts[name] = data[start : start + size]
    return document, parts


def _unknown(found: str) -> AotcError:
    return AotcError(
        "AOTC-P005",
        "the form of the plugin's files is not known",
        where="openvino",
        expected=f"version {_VERSION}",
        found=found,
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _read_bson(data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """A BSON document of strings, integers and documents, and where it ends (bsonspec.org 1.1)."""
    end = at + struct.unpack_from("<i", data, at)[0] - 1
    at += 4
    found: dict[str, Any] = {}
    while at < end:
        kind = data[at]
        stop = data.index(b"\0", at + 1)
        name = data[at + 1 : stop].decode()
        at = stop + 1
        if kind == 3:
            found[name], at = _read_bson(data, at)
        elif kind == 2:
            length = struct.unpack_from("<i", data, at)[0]
            found[name] = data[at + 4 : at + 3 + length].decode()
            at += 4 + length
        elif kind in (0x10, 0x12):
            form = "<i" if kind == 0x10 else "<q"
            found[name] = struct.unpack_from(form, data, at)[0]
            at += struct.calcsize(form)
        else:
            raise _unknown(f"type {kind}")
    return found, end + 1


def _write_bson(document: Mapping[str, Any]) -> bytes:
    body = b""
    for name, value in document.items():
        key = name.encode() + b"\0"
        if isinstance(value, Mapping):
            body += b"\x03" + key + _write_bson(value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            body += b"\x02" + key + struct.pack("<i", len(text)) + text
        else:
            body += b"\x12" + key + struct.pack("<q", value)
    return struct.pack("<i", len(body) + 5) + body + b"\0"
