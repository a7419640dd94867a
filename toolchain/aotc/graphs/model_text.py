"""Text of a model that is not UTF-8, such as names in GBK or Latin-1.

ONNX Runtime takes any bytes for a name, and protobuf gives what is no UTF-8 as bytes; neither
JSON nor the Python of ONNX Runtime can say it.  Such text is written with its bytes escaped
(`\\xbd`): equal texts stay equal and different ones differ, so that all references hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from aotc.contract.finding import Finding
from aotc.errors import AotcError

_NAMED = 5


def escape_text(model: onnx.ModelProto) -> tuple[Finding, ...]:
    """Escape all text of `model` that is not UTF-8; a finding names the fields, if there are any.

    Raises AOTC-I002 for the name of an input or output, by which callers know it, for that of a
    file, and where another text of the model has the escaped form already.
    """
    _refuse_fixed(model)
    known: set[str] = set()
    made: dict[str, str] = {}
    for holder, message, field, index in _texts(model):
        value = getattr(message, field) if index is None else getattr(message, field)[index]
        if isinstance(value, str):
            known.add(value)
            continue
        text = value.decode("utf-8", "backslashreplace")
        if holder == "external_data":
            raise _refusal("TensorProto.external_data", text)
        made.setdefault(text, f"{message.DESCRIPTOR.name}.{field}")
        if index is None:
            setattr(message, field, text)
        else:
            getattr(message, field)[index] = text
    for text in made.keys() & known:
        raise _refusal(made[text], text)
    if not made:
        return ()
    places = list(dict.fromkeys(made.values()))
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    what = f"written with escapes, such as '{next(iter(made))}': {', '.join(places[:_NAMED])}{more}"
    return (Finding(code="AOTC-I041", what=what[:300]),)


def _refuse_fixed(model: onnx.ModelProto) -> None:
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for index, value in enumerate(values):
            # Not `str`, as protobuf's types say, where it is not UTF-8.
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
        expected="UTF-8, as ONNX asks of all text",
        found=repr(text)[:200],
        fix="Export the model with a name in UTF-8, or load the file with onnx, set the field "
        "that is named, and save it.",
    )


def _texts(message: Any, holder: str = "") -> Iterator[tuple[str, Any, str, int | None]]:
    """Every text below `message`, which the field `holder` holds.

    With each the field that holds its message, the message, its own field, and its index in a list.
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
        for each in getattr(message, name):
            yield from _texts(each, name)


@cache
def _fields(descriptor: Descriptor) -> tuple[tuple[str, ...], ...]:
    """Fields of a message by what they hold: text, lists of text, a message, lists of messages."""
    found: tuple[list[str], ...] = ([], [], [], [])
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            found[field.is_repeated].append(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            found[2 + field.is_repeated].append(field.name)
    return tuple(tuple(names) for names in found)
