"""What the models of an artifact refer to outside their own files, read without onnx.

A trusted key may have signed a model whose weights are in `/dev/zero` or in a file outside the
artifact, as tools that sign files do not look into them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Protocol, get_args

from aotc.base.errors import AotcError, with_others
from aotc.base.files.folders import PAYLOAD
from aotc.base.interruptions import stop_if_interrupted
from aotc.base.records import record
from aotc.spec.codec import Pattern, Problem
from aotc.spec.manifest import Manifest
from aotc.spec.payload import PayloadPath
from aotc.spec.providers import EP_CONTEXT
from aotc.spec.variant import Variant
from aotc.trust.container import ArtifactFile, Container

_PATH = next(note.regex for note in get_args(PayloadPath) if isinstance(note, Pattern))
_NUMBER = r"[0-9]{1,19}"
# Weights that ONNX Runtime packed for a kernel: NAME|OFFSET;LENGTH;FLAG|...
_PACKED = "prepacked_"

# A reference is a path or the description of packed weights, and not longer.
_MAX_TEXT_BYTES: Final = 64 << 10
_HEADER_BYTES: Final = 20

VARINT: Final = 0
_FIXED64: Final = 1
LENGTH: Final = 2
_FIXED32: Final = 5

# A smaller message is read at once; of a larger one, only the fields that are needed.
_READ_AT_ONCE_BYTES: Final = 8 << 20
# The limit of protobuf's own readers.
_MAX_DEPTH: Final = 100

_MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
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


def require_inside(
    container: Container, manifest: Manifest, read: Collection[str] | None = None
) -> None:
    """Raise AOTC-G014 if `outside_references` finds references; `also` holds all but the first."""
    found = [
        AotcError(
            "AOTC-G014",
            "a model refers to what was not signed",
            where=f"{PAYLOAD}/{problem.path}",
            found=problem.what,
        )
        for problem in outside_references(container, manifest, read)
    ]
    if found:
        raise with_others(found)


def outside_references(
    container: Container, manifest: Manifest, read: Collection[str] | None = None
) -> list[Problem]:
    """References to files that are not signed or not the variant's, or beyond the end of a file.

    With `read`, only the models among these payload files are examined.  Raises what opening a file
    does.
    """
    sizes = {entry.path: entry.size for entry in manifest.files}
    problems: list[Problem] = []
    for variant in manifest.variants:
        if read is not None and variant.model not in read:
            continue
        known = {path: sizes[path] for path in variant.files}
        with container.open(f"{PAYLOAD}/{variant.model}") as file:
            try:
                problems += _problems_of_model(_FileSource(file), variant, known)
            except MalformedModel as error:
                problems.append(Problem(variant.model, f"is not an ONNX model: {error}"))
    return problems


class _FileSource:
    """A model in a file."""

    def __init__(self, file: ArtifactFile) -> None:
        self.size = file.size
        self._file = file

    def at(self, offset: int, count: int) -> bytes:
        """The `count` bytes at `offset`; raises MalformedModel if there are fewer."""
        self._file.seek(offset)
        parts = bytearray()
        while len(parts) < count:
            part = self._file.read(count - len(parts))
            if not part:
                raise MalformedModel("it ends early")
            parts += part
        return bytes(parts)


def _problems_of_model(
    source: _FileSource, variant: Variant, known: Mapping[str, int]
) -> Iterator[Problem]:
    """The problems of one model.

    ONNX Runtime looks for weights in the folder of the shared weights, and for other files in the
    folder of the model.
    """
    model_folder = posixpath.dirname(variant.model)
    weights_folder = model_folder if variant.weights is None else variant.weights
    reported: set[Problem] = set()
    for reference in references(source):
        if isinstance(reference, CompiledPart):
            found = _compiled_part_problems(reference, variant.model, model_folder, known)
        else:
            found = _external_data_problems(reference, variant.model, weights_folder, known)
        for problem in found:
            if problem not in reported:
                reported.add(problem)
                yield problem


def _compiled_part_problems(
    part: CompiledPart, model: str, folder: str, known: Mapping[str, int]
) -> Iterator[Problem]:
    if part.attribute == CACHE:
        if _signed_size(folder, part.file, known) is None:
            yield _not_signed(model, "a compiled part", part.file)
    # The source need not exist; OpenVINO writes a name without a file.
    elif part.file and not re.fullmatch(_PATH, part.file):
        yield _not_signed(model, "the source of a compiled part", part.file)


def _external_data_problems(
    data: ExternalData, model: str, folder: str, known: Mapping[str, int]
) -> Iterator[Problem]:
    locations = [value for key, value in data.entries if key == "location"]
    sizes = [_signed_size(folder, location, known) for location in locations]
    for location, size in zip(locations, sizes, strict=True):
        if size is None:
            yield _not_signed(model, "external data", location)
    if not locations:
        yield Problem(model, "has external data without a location")
    smallest = min((size for size in sizes if size is not None), default=None)
    if smallest is None:
        return
    offset, length = "0", "0"
    for key, value in data.entries:
        if key == "offset":
            offset = value
        elif key == "length":
            length = value
        elif key.startswith(_PACKED):
            for part in value.split("|")[1:]:
                start, _, rest = part.partition(";")
                yield from _beyond_end(model, start, rest.partition(";")[0], smallest)
    yield from _beyond_end(model, offset, length, smallest)


def _beyond_end(model: str, offset: str, length: str, size: int) -> Iterator[Problem]:
    numbers = [int(text) for text in (offset, length) if re.fullmatch(_NUMBER, text)]
    if len(numbers) < 2 or sum(numbers) > size:
        place = f"{offset[:20]} + {length[:20]}"
        yield Problem(model, f"has external data at {place}, of a file of {size} bytes")


def _signed_size(folder: str, file: str, known: Mapping[str, int]) -> int | None:
    """The size of a signed file of the variant, by its name in the model; None if there is none."""
    if not re.fullmatch(_PATH, file):
        return None
    return known.get(posixpath.join(folder, file))


def _not_signed(model: str, what: str, file: str) -> Problem:
    return Problem(model, f"has {what} in {file[:100]!r}, which is not among its signed files")


# The wire format of protobuf, read field by field; skipped fields are not read.
#
# Source: https://protobuf.dev/programming-guides/encoding/


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
    stop_if_interrupted()
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


# The references of an ONNX model to other files, read without onnx and ONNX Runtime.
#
# Software that could follow a reference must not see a model before its references are checked. So
# this module walks the protobuf wire format: it enters messages that can hold a reference, by the
# field numbers of onnx.proto (ONNX 1.21), and skips everything else without reading it.


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
    if isinstance(source, InMemory) and not any(source.holds(m, start, end) for m in _MARKS):
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
                what = f"a compiled part is named by reference to another attribute ({name})"
                raise MalformedModel(what)
            files += [(name, value, length) for value, length in texts]
    for name, value, length in files:
        if not (embedded and name == CACHE):
            yield CompiledPart(name, text(source, value, length))
