"""The wire format of protobuf, read field by field: of what is skipped, nothing is read.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

# No reference is longer: a path, or the description of packed weights.
_MOST_TEXT: Final = 64 << 10
_HEADER_BYTES: Final = 20

VARINT: Final = 0
_FIXED64: Final = 1
LENGTH: Final = 2
_FIXED32: Final = 5


class MalformedModel(Exception):
    """The bytes are no ONNX model in protobuf's wire format; the text says what was found."""


class Source(Protocol):
    """A model's bytes."""

    size: int

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`; raises MalformedModel where it has fewer."""


class InMemory:
    """A model in memory."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`."""
        if offset + count > self.size:
            raise MalformedModel("it ends early")
        return self._data[offset : offset + count]

    def holds(self, mark: bytes, start: int, end: int) -> bool:
        """Whether a part holds these bytes."""
        return self._data.find(mark, start, end) >= 0


def fields(source: Source, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, value and length of each field of a message; raises MalformedModel.

    Of a length-delimited field the value is where it begins; of a varint, its value.
    """
    position = start
    held = isinstance(source, InMemory)
    data = source.at(0, source.size) if held else b""
    while position < end:
        if not held:
            data = source.at(position, min(_HEADER_BYTES, end - position))
        base = 0 if held else position
        tag, at = _varint(data, position - base)
        # Of longer ones protobuf's C++ reader drops the upper bits, and other readers do not.
        if tag >> 32:
            raise MalformedModel("a field whose tag has more than 32 bits")
        number, wire = tag >> 3, tag & 7
        value = length = 0
        if wire == LENGTH:
            length, at = _varint(data, at)
            value = at + base
            position = value + length
        elif wire == VARINT:
            value, at = _varint(data, at)
            position = at + base
        elif wire == _FIXED64:
            position = at + base + 8
        elif wire == _FIXED32:
            position = at + base + 4
        else:
            raise MalformedModel(f"a field of wire type {wire}")
        if position > end:
            raise MalformedModel("a field that is longer than its message")
        if not number:
            raise MalformedModel("a field without a number")
        yield number, wire, value, length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most 64 bits, and where it ends."""
    result = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    except IndexError:
        raise MalformedModel("it ends early") from None
    if shift > 63 or result >> 64:
        raise MalformedModel("a number of more than 64 bits")
    return result, at


def text(source: Source, start: int, length: int) -> str:
    """A string of a message, if it is no longer than a reference may be; raises MalformedModel."""
    if length > _MOST_TEXT:
        raise MalformedModel(f"a reference of {length} bytes")
    try:
        return source.at(start, length).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedModel("a reference that is not UTF-8") from None


def require_length(wire: int, kind: str, number: int) -> None:
    """Raise MalformedModel where a field of a message is not length-delimited."""
    if wire != LENGTH:
        raise MalformedModel(f"field {number} of a {kind} has wire type {wire}")
