"""What a model file holds, counted over protobuf's wire format before it is parsed.

Two bytes can be a node, and a call of a function stands for all nodes of its body, so a small file
could take minutes and gigabytes to parse, to describe and to inline.  Nothing is expanded here: a
call is counted as the nodes that it stands for.

Source: https://protobuf.dev/programming-guides/encoding/, and onnx.proto of ONNX 1.21.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aotc.base.errors import AotcError

MAX_NODES: Final = 100_000
"""Nodes of a model, those in subgraphs and functions included, also after calls are inlined."""
MAX_PARTS: Final = 1_000_000
"""Messages of a model: nodes, attributes, tensors and so on; those of types are not counted."""
MIN_PART_BYTES: Final = 10
"""What a part takes at least in the mean, beyond the first `FEW_PARTS`; real ones take more."""
FEW_PARTS: Final = 50_000
MAX_INLINED: Final = 32
"""Nodes after calls are inlined, for each that is written down, beyond the first `FEW_NODES`."""
FEW_NODES: Final = 1_024
MAX_DIMS: Final = 64
"""Dims of a tensor, as numpy has it."""
MAX_DEPTH: Final = 100
"""Nested messages, as protobuf's own readers have it."""

_NODE, _FUNCTION, _TENSOR, _GRAPH, _TYPE = "node", "function", "tensor", "graph", "type"
# Messages by their kind and field number; a unit test compares them with those of `onnx`.  Types
# are not entered: their time and memory are as small as their bytes.
MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    "model": {
        7: _GRAPH, 8: "opset", 14: "entry", 20: "training", 25: _FUNCTION, 26: "device",
    },
    _GRAPH: {
        1: _NODE, 5: _TENSOR, 11: "value", 12: "value", 13: "value", 14: "annotation",
        15: "sparse", 16: "entry",
    },
    _NODE: {5: "attribute", 9: "entry", 10: "node_device"},
    "attribute": {
        5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 14: _TYPE, 15: _TYPE,
        22: "sparse", 23: "sparse",
    },
    _TENSOR: {3: "segment", 13: "entry", 16: "entry"},
    "sparse": {1: _TENSOR, 2: _TENSOR},
    "value": {2: _TYPE, 4: "entry"},
    "annotation": {2: "entry"},
    "training": {1: _GRAPH, 2: _GRAPH, 3: "entry", 4: "entry"},
    _FUNCTION: {7: _NODE, 9: "opset", 11: "attribute", 12: "value", 14: "entry"},
    "node_device": {2: "sharding"},
    "sharding": {3: "sharding_entry", 4: "sharded_dim"},
    "sharded_dim": {2: "simple_dim"},
}  # fmt: skip
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
# What is only counted has no messages, so its fields are skipped with it.
_LEAVES: Final = frozenset(
    kind for inner in MESSAGES.values() for kind in inner.values() if kind not in MESSAGES
)
# A message of this kind that has none of these bytes holds none that is counted: a tag of theirs
# begins with one of them, also where it is written in more bytes than it needs.
_MARKS: Final = {
    kind: re.compile(
        b"[%s]"
        % b"".join(
            b"\\x%02x" % byte
            for number, inner in MESSAGES[kind].items()
            if inner != _TYPE
            for byte in {number << 3 & 0x7F | _LENGTH, number << 3 & 0x7F | _LENGTH | 0x80}
        )
    )
    for kind in (_NODE, "attribute", "value")
}
_BY_TAG: Final = {
    kind: {number << 3 | _LENGTH: inner for number, inner in fields.items()}
    for kind, fields in MESSAGES.items()
}
# Numbers of an attribute, each in a field of its own: ensembles of trees have millions.
_RUNS: Final = {
    7 << 3 | _FIXED32: re.compile(rb"(?:\x3d.{4})*+", re.DOTALL),
    8 << 3 | _VARINT: re.compile(rb"(?:\x40[\x80-\xff]{0,9}[\x00-\x7f])*+"),
}
_DIMS: Final = 1 << 3
_MAX_VARINT_BYTES: Final = 10
# The name of an operator or a function: its domain, name and overload, by their tags.
_NAMES: Final = {
    _NODE: (7 << 3 | _LENGTH, 4 << 3 | _LENGTH, 8 << 3 | _LENGTH),
    _FUNCTION: (10 << 3 | _LENGTH, 1 << 3 | _LENGTH, 13 << 3 | _LENGTH),
}
_STANDARD: Final = b"ai.onnx"
_WITH_NODES: Final = frozenset((_NODE, _GRAPH, _FUNCTION, "attribute", "training"))
_FIX: Final = (
    "These limits are against files that are made to cost (docs/limits.md). Export the model with "
    "fewer parts: with loops in place of copies, say."
)


class MalformedWire(ValueError):
    """The bytes are not a model in the wire format; the text says what was found."""


class Counted(NamedTuple):
    """How much a model holds; `inlined` are its nodes with those that calls stand for."""

    nodes: int
    parts: int
    inlined: int


def refuse_costly(data: bytes, where: str) -> None:
    """Raise AOTC-I002 for a model file whose content costs far more than its bytes.

    Raises MalformedWire if the bytes are no model.
    """
    counted = count(data, where)
    if counted.inlined > max(FEW_NODES, MAX_INLINED * counted.nodes):
        raise _costly(
            "calls of the model's functions stand for too many nodes",
            where,
            f"at most {MAX_INLINED} for each that is written down, or {FEW_NODES}",
            f"{counted.inlined} for {counted.nodes}",
        )
    if counted.inlined > MAX_NODES:
        raise _too_many("nodes", where, MAX_NODES, counted.inlined)
    if counted.parts > max(FEW_PARTS, len(data) // MIN_PART_BYTES):
        raise _costly(
            "the model has too many parts for its size",
            where,
            f"at least {MIN_PART_BYTES} bytes for each, beyond the first {FEW_PARTS}",
            f"{counted.parts} in {len(data)} bytes",
        )


def count(data: bytes, where: str) -> Counted:
    """How much the model in `data` holds, up to the limits.

    Raises AOTC-I002 once a limit is exceeded, and MalformedWire if the bytes are no model.
    """
    nodes, parts, has_functions = _written(data, where)
    inlined = _inlined(data, where) if has_functions else nodes
    return Counted(nodes, parts, inlined)


def _written(data: bytes, where: str) -> tuple[int, int, bool]:
    """Nodes and parts of a model, and whether it has functions."""
    nodes = parts = dims = 0
    has_functions = False
    # Where the messages around the current one end, and what they are.
    around: list[tuple[int, str]] = []
    kind, inner, position, end = "model", _BY_TAG["model"], 0, len(data)
    try:
        while True:
            if position >= end:
                if position > end:
                    raise MalformedWire("a field that is longer than its message")
                if not around:
                    return nodes, parts, has_functions
                end, kind = around.pop()
                inner = _BY_TAG[kind]
                continue
            tag = data[position]
            position += 1
            if tag > 0x7F:
                tag, position = _varint(data, position - 1)
            wire = tag & 7
            # Readers differ in what they make of longer tags.
            if not 8 <= tag < 1 << 32:
                raise MalformedWire("a field without a number, or with one of more than 29 bits")
            if wire == _LENGTH:
                length = data[position]
                position += 1
                if length > 0x7F:
                    length, position = _varint(data, position - 1)
                part = inner.get(tag)
                if part is None:
                    if kind == _TENSOR and tag == _DIMS | _LENGTH:
                        # Of those that are packed, each takes at most 10 bytes.
                        dims += -(-length // _MAX_VARINT_BYTES)
                        if dims > MAX_DIMS:
                            raise _too_many("dims of a tensor", where, MAX_DIMS)
                    position += length
                    continue
                if part != _TYPE:
                    parts += 1
                    if parts > MAX_PARTS:
                        raise _too_many("parts", where, MAX_PARTS)
                if part == _TENSOR:
                    dims = 0
                elif part == _NODE:
                    nodes += 1
                    if nodes > MAX_NODES:
                        raise _too_many("nodes", where, MAX_NODES)
                elif part == _FUNCTION:
                    has_functions = True
                if part in _LEAVES:
                    position += length
                    continue
                marks = _MARKS.get(part)
                if marks is not None and marks.search(data, position, position + length) is None:
                    position += length
                    continue
                if len(around) == MAX_DEPTH:
                    raise too_deep(where)
                if position + length > end:
                    raise MalformedWire("a field that is longer than its message")
                around.append((end, kind))
                end, kind, inner = position + length, part, _BY_TAG[part]
            elif kind == "attribute" and tag in _RUNS and data[position - 1] == tag:
                run = _RUNS[tag].match(data, position - 1, end)
                if run is None or run.end() < position:
                    raise MalformedWire("a number that is cut off")
                position = run.end()
            elif wire == _VARINT:
                while data[position] > 0x7F:
                    position += 1
                position += 1
                if kind == _TENSOR and tag == _DIMS:
                    dims += 1
                    if dims > MAX_DIMS:
                        raise _too_many("dims of a tensor", where, MAX_DIMS)
            elif wire in _FIXED_BYTES:
                position += _FIXED_BYTES[wire]
            else:
                raise MalformedWire(f"a field of wire type {wire}")
    except IndexError:
        raise MalformedWire("it ends early") from None


# Which operators or functions a body names, and how often.
_Calls = Counter[tuple[bytes, ...]]


def _inlined(data: bytes, where: str) -> int:
    """Nodes of a model once all calls of its functions are inlined; its wire format was walked."""
    main: _Calls = Counter()
    functions: dict[tuple[bytes, ...], _Calls] = {}
    for tag, start, length in _parts(data, 0, len(data)):
        part = _BY_TAG["model"].get(tag)
        calls = _calls(data, part, start, start + length) if part in _WITH_NODES else Counter()
        if part == _FUNCTION:
            name = _name(data, _FUNCTION, start, start + length)
            # Of two with one name, the larger counts.
            functions[name] = max(functions.get(name, calls), calls, key=Counter.total)
        else:
            main.update(calls)
    known: dict[tuple[bytes, ...], int] = {}
    for name in functions:
        # What it stands for is known once that of all that it calls is known.
        waiting, entered = [name], set()
        while waiting:
            current = waiting[-1]
            if current in known:
                waiting.pop()
                continue
            called = [each for each in functions[current] if each in functions]
            unknown = [each for each in called if each not in known]
            if not unknown:
                known[current] = _total(functions[current], known)
                waiting.pop()
            elif current in entered:
                raise _costly("a function of the model calls itself", where, "no circle of calls")
            else:
                entered.add(current)
                waiting += unknown
    return _total(main, known)


def _total(calls: _Calls, known: Mapping[tuple[bytes, ...], int]) -> int:
    total = sum(count * known.get(name, 1) for name, count in calls.items())
    # More digits say nothing more.
    return min(total, 10**12)


def _calls(data: bytes, part: str, start: int, end: int) -> _Calls:
    """The operators and functions that nodes of a message name, those in its subgraphs too."""
    found: _Calls = Counter()
    waiting = [(part, start, end)]
    while waiting:
        part, start, end = waiting.pop()
        if part == _NODE:
            found[_name(data, _NODE, start, end)] += 1
        inner = _BY_TAG[part]
        waiting += [
            (kind, begin, begin + length)
            for tag, begin, length in _parts(data, start, end)
            if (kind := inner.get(tag, "")) in _WITH_NODES
        ]
    return found


def _name(data: bytes, part: str, start: int, end: int) -> tuple[bytes, ...]:
    found = dict.fromkeys(_NAMES[part], b"")
    for tag, begin, length in _parts(data, start, end):
        if tag in found:
            found[tag] = data[begin : begin + length]
    domain, *rest = found.values()
    return (b"" if domain == _STANDARD else domain, *rest)


def _parts(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, place and length of each length-delimited field of a message that was walked before."""
    position = start
    while position < end:
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == _LENGTH:
            length, position = _varint(data, position)
            yield tag, position, length
            position += length
        elif wire == _VARINT:
            _, position = _varint(data, position)
        else:
            position += _FIXED_BYTES[wire]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and the place after it; raises IndexError and MalformedWire."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > 63:
            raise MalformedWire("a number of more than 64 bits")


def _too_many(what: str, where: str, limit: int, found: int | None = None) -> AotcError:
    text = "more" if found is None else str(found)
    return _costly(f"the model has too many {what}", where, f"at most {limit}", text)


def too_deep(where: str) -> AotcError:
    """The refusal of a model whose messages are nested deeper than protobuf reads."""
    return AotcError(
        "AOTC-I002",
        "the model is nested too deeply",
        where=where,
        expected=f"at most {MAX_DEPTH} nested messages, which is about 31 nested subgraphs of "
        "control flow; ONNX Runtime reads no more",
        fix="Export the model with less control flow inside of control flow.",
    )


def _costly(what: str, where: str, expected: str, found: str = "") -> AotcError:
    return AotcError("AOTC-I002", what, where=where, expected=expected, found=found, fix=_FIX)
