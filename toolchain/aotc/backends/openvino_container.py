"""The file format of OpenVINO's compiled parts, as far as it is needed to join them.

A session reads one such file, while each partition is compiled in a separate process.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aotc.errors import AotcError

# The plugin writes "OVEP_BIN", then four 64-bit integers (version, size of the header, offset and
# size of a BSON document), the document, and the compiled parts, each at a multiple of 64 KiB; the
# document has offset and size of each part by its name.
_MAGIC: Final = b"OVEP_BIN"
_HEADER: Final = "<8sQQQQ"
_ALIGN: Final = 1 << 16
_VERSION: Final = 1


def join_containers(containers: Sequence[bytes]) -> bytes:
    """One container with the parts of all; raises AOTC-P005 for an unknown format."""
    parts: dict[str, bytes] = {}
    rest: dict[str, Any] = {}
    for data in containers:
        try:
            document, found = _read_container(data)
        except (struct.error, ValueError, LookupError, TypeError) as error:
            raise _unknown_form(str(error)) from None
        rest = rest or document
        if parts.keys() & found.keys():
            raise _unknown_form("two partitions of one name")
        parts |= found
    size = struct.calcsize(_HEADER)
    # The entry of a name takes its length and fewer than 64 bytes.
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


def _read_container(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document of a container, and its parts by name."""
    magic, version, _, offset, _ = struct.unpack_from(_HEADER, data)
    if magic != _MAGIC or version != _VERSION:
        raise _unknown_form(f"{magic!r} version {version}")
    document, _ = _read_bson(data, offset)
    parts = {}
    for name, place in document["blob_metadata_map"].items():
        start, size = place["data_offset"], place["size"]
        if start + size > len(data):
            raise _unknown_form(f"{len(data)} bytes")
        parts[name] = data[start : start + size]
    return document, parts


def _unknown_form(found: str) -> AotcError:
    return AotcError(
        "AOTC-P005",
        "the form of the plugin's files is not known",
        where="openvino",
        expected=f"version {_VERSION}",
        found=found,
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _read_bson(data: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """A BSON document of strings, integers and documents, and its end (bsonspec.org 1.1)."""
    end = offset + struct.unpack_from("<i", data, offset)[0] - 1
    offset += 4
    found: dict[str, Any] = {}
    while offset < end:
        kind = data[offset]
        stop = data.index(b"\0", offset + 1)
        name = data[offset + 1 : stop].decode()
        offset = stop + 1
        if kind == 3:
            found[name], offset = _read_bson(data, offset)
        elif kind == 2:
            length = struct.unpack_from("<i", data, offset)[0]
            found[name] = data[offset + 4 : offset + 3 + length].decode()
            offset += 4 + length
        elif kind in (0x10, 0x12):
            form = "<i" if kind == 0x10 else "<q"
            found[name] = struct.unpack_from(form, data, offset)[0]
            offset += struct.calcsize(form)
        else:
            raise _unknown_form(f"type {kind}")
    return found, end + 1


def _write_bson(document: Mapping[str, Any]) -> bytes:
    content = b""
    for name, value in document.items():
        key = name.encode() + b"\0"
        if isinstance(value, Mapping):
            content += b"\x03" + key + _write_bson(value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            content += b"\x02" + key + struct.pack("<i", len(text)) + text
        else:
            content += b"\x12" + key + struct.pack("<q", value)
    return struct.pack("<i", len(content) + 5) + content + b"\0"
