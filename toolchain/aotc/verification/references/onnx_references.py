"""What an ONNX model refers to outside of its own file, read without ONNX or ONNX Runtime.

Nothing that could act on a reference may see a model before its references are checked, so the
protobuf wire format is walked here: messages that may hold a reference are entered, by the field
numbers of onnx.proto (ONNX 1.21), and all else is skipped without being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aotc.contract.operator_domains import EP_CONTEXT
from aotc.records import record
from aotc.verification.references.protobuf_wire import (
    VARINT,
    InMemory,
    MalformedModel,
    Source,
    fields,
    require_length,
    text,
)

# What is smaller is read at once; of what is larger, field by field, only what is needed.
_WHOLE_BYTES: Final = 8 << 20
# As deep as protobuf's own readers go.
_MOST_DEPTH: Final = 100

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

# Strings are contiguous in the wire format: without one of these, or the field that says that a
# tensor's data is external, nothing refers to a file, and most nodes need not be walked.
_MARKS: Final = (b"location", EP_CONTEXT.encode(), bytes((_DATA_LOCATION << 3 | VARINT, _EXTERNAL)))
# Attributes of an EPContext node that name files; the first holds the bytes where it embeds them.
CACHE, SOURCE_MODEL, EMBEDDED = "ep_cache_context", "onnx_model_filename", "embed_mode"


@record(kw_only=False)
class ExternalData:
    """Where a tensor's values are: the entries as they are written, a key perhaps twice."""

    entries: tuple[tuple[str, str], ...]


@record(kw_only=False)
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
    if end - start <= _WHOLE_BYTES and not isinstance(source, InMemory):
        source, start, end = InMemory(source.at(start, end - start)), 0, end - start
    if isinstance(source, InMemory) and not _may_refer(source, start, end):
        return
    if kind == "tensor":
        yield from _tensor(source, start, end)
        return
    inner = _MESSAGES[kind]
    is_context = False
    attributes = []
    for number, wire, value, length in fields(source, start, end):
        message = inner.get(number)
        if message is not None:
            require_length(wire, kind, number)
            yield from _walk(source, message, value, value + length, depth + 1)
            if kind == "node":
                attributes.append((value, length))
        elif kind == "node" and number == _OP_TYPE:
            require_length(wire, kind, number)
            is_context = length == len(EP_CONTEXT) and text(source, value, length) == EP_CONTEXT
    if is_context:
        yield from _context(source, attributes)


def _may_refer(model: InMemory, start: int, end: int) -> bool:
    """Whether a part holds what any reader would need to find a reference in it."""
    return any(model.holds(mark, start, end) for mark in _MARKS)


def _tensor(source: Source, start: int, end: int) -> Iterator[Reference]:
    entries = []
    external = False
    for number, wire, value, length in fields(source, start, end):
        if number == _EXTERNAL_DATA:
            require_length(wire, "tensor", number)
            entries.append(_entry(source, value, value + length))
        elif number == _DATA_LOCATION:
            external = external or value == _EXTERNAL
    if entries or external:
        yield ExternalData(tuple(entries))


def _entry(source: Source, start: int, end: int) -> tuple[str, str]:
    found = {_KEY: "", _VALUE: ""}
    for number, wire, value, length in fields(source, start, end):
        if number in found:
            require_length(wire, "entry", number)
            found[number] = text(source, value, length)
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
        for number, wire, value, length in fields(source, start, start + size):
            if number == _NAME:
                require_length(wire, "attribute", number)
                name = text(source, value, length)
            elif number == _INT and wire == VARINT:
                stated = value
            elif number == _BY_REFERENCE:
                by_reference = length > 0
            elif number in (_STRING, _STRINGS):
                require_length(wire, "attribute", number)
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
            yield CompiledPart(name, text(source, value, length))
