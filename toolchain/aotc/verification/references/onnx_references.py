"""What an ONNX model refers to outside of its own file, read without ONNX or ONNX Runtime.

Nothing that could act on a reference may see a model before its references are checked, so the
protobuf wire format (https://protobuf.dev/programming-guides/encoding/) is walked here: messages
that may hold a reference are entered, by the field numbers of onnx.proto (ONNX 1.21), and all else
is skipped without being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

# What is smaller is read at once; of what is larger, field by field, only what is needed.
_WHOLE_BYTES: Final = 8 << 20
# No reference is longer: a path, or the description of packed weights.
_MOST_TEXT: Final = 64 << 10
# As deep as protobuf's own readers go.
_MOST_DEPTH: Final = 100
_HEADER_BYTES: Final = 20

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

_MODEL: Final[Mapping[int, str]] = {7: "graph", 20: "training", 25: "function"}
_GRAPH: Final[Mapping[int, str]] = {1: "node", 5: "tensor", 15: "sparse"}
_MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    "model": _MODEL,
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": _GRAPH,
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse",
        23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
}
_OP_TYPE: Final = 4
_NAME, _INT, _STRING, _STRINGS, _BY_REFERENCE = 1, 3, 4, 9, 21
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_EXTERNAL: Final = 1
_KEY, _VALUE = 1, 2
# What ONNX Runtime goes by, whatever a file is called: the identifier of a flatbuffer.
_ORT_FORMAT: Final = b"ORTM"

CONTEXT: Final = "EPContext"
# Strings are contiguous in the wire format: without one of these, or the field that says that a
# tensor's data is external, nothing refers to a file, and most nodes need not be walked.
_MARKS: Final = (b"location", CONTEXT.encode(), bytes((_DATA_LOCATION << 3 | _VARINT, _EXTERNAL)))
# Attributes of an EPContext node that name files; the first holds the bytes where it embeds them.
CACHE, SOURCE_MODEL, EMBEDDED = "ep_cache_context", "onnx_model_filename", "embed_mode"


class MalformedModel(Exception):
    """The bytes are no ONNX model in protobuf's wire format; the text says what was found."""


class Source(Protocol):
    """A model's bytes."""

    size: int

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`; raises MalformedModel where it has fewer."""


class Held:
    """A model in memory."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`."""
        if offset + count > self.size:
            raise MalformedModel("it ends early")
        return self._data[offset : offset + count]

    def may_refer(self, start: int, end: int) -> bool:
        """Whether a part holds what any reader would need to find a reference in it."""
        return any(self._data.find(mark, start, end) >= 0 for mark in _MARKS)


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Where a tensor's values are: the entries as they are written, a key perhaps twice."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A file that an EPContext node names, with the attribute that names it."""

    attribute: str
    file: str


Reference = ExternalData | CompiledPart


def references(source: Source) -> Iterator[Reference]:
    """Every reference of the model, of control-flow bodies and functions too, in their order.

    Raises MalformedModel.
    """
    if source.size >= 8 and source.at(4, 4) == _ORT_FORMAT:
        raise MalformedModel("it is in ONNX Runtime's own format")
    yield from _walk(source, "model", 0, source.size, 0)


def _walk(source: Source, kind: str, start: int, end: int, depth: int) -> Iterator[Reference]:
    if depth > _MOST_DEPTH:
        raise MalformedModel(f"it is nested deeper than {_MOST_DEPTH} messages")
    if end - start <= _WHOLE_BYTES and not isinstance(source, Held):
        source, start, end = Held(source.at(start, end - start)), 0, end - start
    if isinstance(source, Held) and not source.may_refer(start, end):
        return
    if kind == "tensor":
        yield from _tensor(source, start, end)
        return
    inner = _MESSAGES[kind]
    is_context = False
    attributes = []
    for number, wire, value, length in _fields(source, start, end):
        message = inner.get(number)
        if message is not None:
            _require_length(wire, kind, number)
            yield from _walk(source, message, value, value + length, depth + 1)
            if kind == "node":
                attributes.append((value, length))
        elif kind == "node" and number == _OP_TYPE:
            _require_length(wire, kind, number)
            is_context = length == len(CONTEXT) and _text(source, value, length) == CONTEXT
    if is_context:
        yield from _context(source, attributes)


def _tensor(source: Source, start: int, end: int) -> Iterator[Reference]:
    entries = []
    external = False
    for number, wire, value, length in _fields(source, start, end):
        if number == _EXTERNAL_DATA:
            _require_length(wire, "tensor", number)
            entries.append(_entry(source, value, value + length))
        elif number == _DATA_LOCATION:
            external = external or value == _EXTERNAL
    if entries or external:
        yield ExternalData(tuple(entries))


def _entry(source: Source, start: int, end: int) -> tuple[str, str]:
    found = {_KEY: "", _VALUE: ""}
    for number, wire, value, length in _fields(source, start, end):
        if number in found:
            _require_length(wire, "entry", number)
            found[number] = _text(source, value, length)
    return found[_KEY], found[_VALUE]


def _context(source: Source, attributes: list[tuple[int, int]]) -> Iterator[Reference]:
    # The schema's default: the node holds the compiled bytes themselves.
    embedded = True
    files: list[tuple[str, int, int]] = []
    for start, size in attributes:
        name = ""
        stated = 0
        texts = []
        by_reference = False
        for number, wire, value, length in _fields(source, start, start + size):
            if number == _NAME:
                _require_length(wire, "attribute", number)
                name = _text(source, value, length)
            elif number == _INT and wire == _VARINT:
                stated = value
            elif number == _BY_REFERENCE:
                by_reference = length > 0
            elif number in (_STRING, _STRINGS):
                _require_length(wire, "attribute", number)
                texts.append((value, length))
        if name == EMBEDDED:
            # Providers differ in what they take another number than 0 and 1 for.
            embedded = embedded and stated == 1 and not by_reference
        elif name in (CACHE, SOURCE_MODEL):
            if by_reference:
                raise MalformedModel(f"a compiled part named by another's attribute ({name})")
            files += [(name, value, length) for value, length in texts]
    for name, value, length in files:
        if not (embedded and name == CACHE):
            yield CompiledPart(name, _text(source, value, length))


def _fields(source: Source, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, value and length of each field.

    Of a length-delimited field the value is where it begins; of a varint, its value.
    """
    position = start
    held = isinstance(source, Held)
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
        if wire == _LENGTH:
            length, at = _varint(data, at)
            value = at + base
            position = value + length
        elif wire == _VARINT:
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


def _text(source: Source, start: int, length: int) -> str:
    if length > _MOST_TEXT:
        raise MalformedModel(f"a reference of {length} bytes")
    try:
        return source.at(start, length).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedModel("a reference that is not UTF-8") from None


def _require_length(wire: int, kind: str, number: int) -> None:
    if wire != _LENGTH:
        raise MalformedModel(f"field {number} of a {kind} has wire type {wire}")
