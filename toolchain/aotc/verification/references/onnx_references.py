"""The references of an ONNX model to other files, read without onnx and ONNX Runtime.

Software that could follow a reference must not see a model before its references are checked.  So
this module walks the protobuf wire format: it enters messages that can hold a reference, by the
field numbers of onnx.proto (ONNX 1.21), and skips everything else without reading it.
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

# A smaller message is read at once; of a larger one, only the fields that are needed.
_READ_AT_ONCE_BYTES: Final = 8 << 20
# The limit of protobuf's own readers.
_MAX_DEPTH: Final = 100

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
# By this identifier of a flatbuffer ONNX Runtime recognizes its own format.
_ORT_FORMAT: Final = b"ORTM"

# Strings are contiguous in the wire format: a message without these strings, and without the field
# that states that a tensor's data is external, has no references, so most nodes are not walked.
_MARKS: Final = (b"location", EP_CONTEXT.encode(), bytes((_DATA_LOCATION << 3 | VARINT, _EXTERNAL)))
# Attributes of an EPContext node; if it embeds the compiled part, the first one holds its bytes.
CACHE, SOURCE_MODEL, EMBEDDED = "ep_cache_context", "onnx_model_filename", "embed_mode"


@record(kw_only=False)
class ExternalData:
    """The external data of a tensor: its entries as they are written, possibly with equal keys."""

    entries: tuple[tuple[str, str], ...]


@record(kw_only=False)
class CompiledPart:
    """A file that an EPContext node names, and the attribute that names it."""

    attribute: str
    file: str


Reference = ExternalData | CompiledPart


def references(source: Source) -> Iterator[Reference]:
    """All references of a model, including its subgraphs and functions, in their order.

    Raises MalformedModel if the bytes are not a model in the wire format.
    """
    if source.size >= 8 and source.at(4, 4) == _ORT_FORMAT:
        raise MalformedModel("it is in ONNX Runtime's own format")
    yield from _walk(source, "model", 0, source.size, 0)


def _walk(source: Source, kind: str, start: int, end: int, depth: int) -> Iterator[Reference]:
    if depth > _MAX_DEPTH:
        raise MalformedModel(f"it is nested deeper than {_MAX_DEPTH} messages")
    if end - start <= _READ_AT_ONCE_BYTES and not isinstance(source, InMemory):
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
    """Whether a message has bytes without which it cannot hold a reference."""
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
    # The default of the schema: the node embeds the compiled part.
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
            # Providers interpret numbers other than 0 and 1 differently.
            embedded = embedded and stated == 1 and not by_reference
        elif name in (CACHE, SOURCE_MODEL):
            if by_reference:
                raise MalformedModel(
                    f"a compiled part is named by reference to another attribute ({name})"
                )
            files += [(name, value, length) for value, length in texts]
    for name, value, length in files:
        if not (embedded and name == CACHE):
            yield CompiledPart(name, text(source, value, length))
