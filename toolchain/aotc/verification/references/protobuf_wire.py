"""The wire format of protobuf, read field by field; skipped fields are not read.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

# A reference is a path or the description of packed weights, and not longer.
_MAX_TEXT_BYTES: Final = 64 << 10
_HEADER_BYTES: Final = 20

VARINT: Final = 0
_FIXED64: Final = 1
LENGTH: Final = 2
_FIXED32: Final = 5


class MalformedModel(Exception):
    """The bytes are not an ONNX model in the wire format; the text says what was found."""


class Source(Protocol):
    """The bytes of a model."""

    size: int

    def at(self, offset: int, count: int) -> bytes:
        """The `count` bytes at `offset`; raises MalformedModel if there are fewer."""


class InMemory:
    """A model in memory."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def at(self, offset: int, count: int) -> bytes:
        """The `count` bytes at `offset`; raises MalformedModel if there are fewer."""
        if offset + count > self.size:
            raise MalformedModel("it ends early")
        return self._data[offset : offset + count]

    def holds(self, mark: bytes, start: int, end: int) -> bool:
        """Whether these bytes occur between `start` and `end`."""
        return self._data.find(mark, start, end) >= 0


def fields(source: Source, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, value and length of each field of a message; raises MalformedModel.

    The value of a length-delimited field is its offset, and that of a varint is its number.
    """
    position = start
    held = isinstance(source, InMemory)
    data = source.at(0, source.size) if held else b""
    while position < end:
        if not held:
            data = source.at(position, min(_HEADER_BYTES, end - position))
        base = 0 if held else position
        tag, at = _varint(data, position - base)
        # For longer tags, protobuf's C++ reader drops the upper bits, which others do not.
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
    """A number of at most 64 bits, and the offset after it."""
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
    """A string of a message; raises MalformedModel if it is longer than references can be."""
    if length > _MAX_TEXT_BYTES:
        raise MalformedModel(f"a reference of {length} bytes")
    try:
        return source.at(start, length).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedModel("a reference that is not UTF-8") from None


def require_length(wire: int, kind: str, number: int) -> None:
    """Raise MalformedModel if a field of a message is not length-delimited."""
    if wire != LENGTH:
        raise MalformedModel(f"field {number} of a {kind} has wire type {wire}")
