"""Text of a model that is not UTF-8, such as names in GBK or Latin-1.

ONNX Runtime accepts any bytes as a name, and protobuf returns what is not UTF-8 as bytes; neither
JSON nor ONNX Runtime's Python API can represent it.  Such text is written with its bytes escaped
(`\\xbd`): equal texts stay equal and different ones different, so that all references still match.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from aotc.contract.finding import Finding
from aotc.errors import AotcError

_MAX_NAMED = 5


def escape_text(model: onnx.ModelProto) -> tuple[Finding, ...]:
    """Escape all text of `model` that is not UTF-8; if there is any, a finding names the fields.

    Raises AOTC-I002 for names of inputs and outputs (callers use them), for file names, and if
    another text of the model already has the escaped form.
    """
    _require_utf8_names(model)
    known: set[str] = set()
    escaped: dict[str, str] = {}
    for holder, message, field, index in _texts(model):
        value = getattr(message, field) if index is None else getattr(message, field)[index]
        if isinstance(value, str):
            known.add(value)
            continue
        text = value.decode("utf-8", "backslashreplace")
        if holder == "external_data":
            raise _refusal("TensorProto.external_data", text)
        escaped.setdefault(text, f"{message.DESCRIPTOR.name}.{field}")
        if index is None:
            setattr(message, field, text)
        else:
            getattr(message, field)[index] = text
    for text in escaped.keys() & known:
        raise _refusal(escaped[text], text)
    if not escaped:
        return ()
    fields = list(dict.fromkeys(escaped.values()))
    more = f" and {len(fields) - _MAX_NAMED} more" if len(fields) > _MAX_NAMED else ""
    names = ", ".join(fields[:_MAX_NAMED])
    what = f"written with escapes, such as '{next(iter(escaped))}': {names}{more}"
    return (Finding(code="AOTC-I041", what=what[:300]),)


def _require_utf8_names(model: onnx.ModelProto) -> None:
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for index, value in enumerate(values):
            # Bytes if it is not UTF-8, unlike protobuf's type annotations say.
            name: Any = value.name
            if isinstance(name, bytes):
                raise _refusal(
                    f"graph.{kind}[{index}].name", name.decode("utf-8", "backslashreplace")
                )


def _refusal(where: str, text: str) -> AotcError:
    return AotcError(
        "AOTC-I002",
        "a name is not UTF-8",
        where=where,
        expected="UTF-8, as ONNX requires of all text",
        found=repr(text)[:200],
        fix="Export the model with a name in UTF-8, or load the file with onnx, set the field "
        "named above, and save it.",
    )


def _texts(message: Any, holder: str = "") -> Iterator[tuple[str, Any, str, int | None]]:
    """Every text below `message`, which is in the field `holder` of its parent.

    Yields the field that holds the text's message, the message, its own field, and its index in a
    list.
    """
    texts, lists, ones, many = _fields(message.DESCRIPTOR)
    for name in texts:
        yield holder, message, name, None
    for name in lists:
        for index in range(len(getattr(message, name))):
            yield holder, message, name, index
    for name in ones:
        if message.HasField(name):
            yield from _texts(getattr(message, name), name)
    for name in many:
        for item in getattr(message, name):
            yield from _texts(item, name)


@cache
def _fields(descriptor: Descriptor) -> tuple[tuple[str, ...], ...]:
    """Fields of a message by content: text, lists of text, a message, lists of messages."""
    found: tuple[list[str], ...] = ([], [], [], [])
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            found[field.is_repeated].append(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            found[2 + field.is_repeated].append(field.name)
    return tuple(tuple(names) for names in found)
