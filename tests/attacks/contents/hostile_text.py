"""Text that would forge lines and control terminals, put into every field that accepts any text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper

from aotc.base.errors import AotcError
from aotc.spec.codec import ParseError, decode
from aotc.trust import dsse
from aotc.trust.key_loading import PrivateKey

Json = Any
MARK = "OWNED"
# Where it is allowed it comes first: no line of ours begins with foreign text.
HOSTILE = (
    f"{MARK} VERIFIED, optimal <b onload=x>\n"
    f"{MARK} ok\r\x1b[2K{MARK}\x9b2K\t{MARK}\x0b\x0c{MARK}\u202e{MARK}"
    f"\u2028{MARK}\u2029{MARK}\x85{MARK}\u200b\u2066\u061c\x7f\x00{MARK} " + f"{MARK} " * 40
)
# For fields that refuse some characters.
TAME = (
    HOSTILE.replace("\x00", ""),
    re.sub(r"[\x00-\x1f\x7f]", "", HOSTILE),
    re.sub(r"[\x00-\x1f\x7f]", "", HOSTILE).replace(" ", "")[:120],
)
_STEERS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]"
)


def refuse_hostile(text: str, columns: int | None = None) -> None:
    """Fail if a line begins with the mark, or if `text` controls a terminal.

    A terminal of `columns` columns breaks lines by itself.
    """
    found = _STEERS.search(text)
    assert not found, f"{found[0]!r} in {text[max(0, found.start() - 200) : found.end() + 50]!r}"
    for line in text.split("\n"):
        width = columns or len(line) or 1
        for start in range(0, len(line) or 1, width):
            assert not line[start:].startswith(MARK), f"at column 0: {line!r}"


def hostile_model() -> onnx.ModelProto:
    """A model that runs, in which every name is hostile."""

    def named(text: str) -> str:
        # Without NUL, so that names can be used in command lines.
        return f"{TAME[0]}{text}"

    x, y, batch = named("../x"), named("../../../y"), named("batch")
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), named("W"))
    bias = numpy_helper.from_array(np.ones(4, dtype=np.float32), named("b"))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", [x, named("W")], [named("t")], name=named("first")),
            helper.make_node("Add", [named("t"), named("b")], [y], name=named("second")),
        ],
        named("graph"),
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, 4])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [batch, 4])],
        [weight, bias],
        doc_string=HOSTILE,
    )
    model = helper.make_model(
        graph,
        producer_name=named("producer"),
        producer_version=HOSTILE,
        domain=HOSTILE,
        doc_string=HOSTILE,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    helper.set_model_props(model, {HOSTILE: HOSTILE})
    return model


def poisoned(kind: type[Any], document: Json) -> Json:
    """`document` with hostile text in each field in which a record of `kind` accepts it."""
    result = json.loads(json.dumps(document))
    hits = 0
    # A key gets its new name last, when everything below it is done.
    for path, put in [*((each, _put) for each in _texts(document)), *_keys(document)]:
        for text in (HOSTILE, *TAME):
            changed = json.loads(json.dumps(result))
            put(changed, path, text)
            try:
                decode(kind, changed)
            except (ParseError, AotcError, ValueError):
                continue
            result, hits = changed, hits + 1
            break
    assert hits, "no field took it"
    return result


def poisoned_everywhere(document: Json) -> Json:
    """`document` with hostile text instead of every text in it."""
    if isinstance(document, dict):
        return {key: poisoned_everywhere(each) for key, each in document.items()}
    if isinstance(document, list):
        return [poisoned_everywhere(item) for item in document]
    return HOSTILE if isinstance(document, str) else document


def _texts(document: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(document, dict):
        for key, each in document.items():
            yield from _texts(each, (*path, key))
    elif isinstance(document, list):
        for index, each in enumerate(document):
            yield from _texts(each, (*path, index))
    elif isinstance(document, str) and path[-1] not in ("schema", "pem"):
        yield path


def _keys(document: Json) -> list[tuple[tuple[Any, ...], Callable[..., None]]]:
    """The first key of each mapping, inner mappings first."""
    found = []
    if isinstance(document, dict | list):
        pairs = document.items() if isinstance(document, dict) else enumerate(document)
        for key, each in pairs:
            found += [((key, *path), put) for path, put in _keys(each)]
        if isinstance(document, dict) and document:
            found.append(((next(iter(document)),), _rename))
    return found


def _rename(document: Json, path: tuple[Any, ...], text: str) -> None:
    *way, last = path
    for key in way:
        document = document[key]
    document[text] = document.pop(last)


def _put(document: Json, path: tuple[Any, ...], text: str) -> None:
    *way, last = path
    for key in way:
        document = document[key]
    document[last] = text


def poison_bundle(bundle: Path, key: PrivateKey) -> None:
    """Hostile text in all that an attestation says, signed again."""
    document = json.loads(bundle.read_bytes())
    envelope = document["dsseEnvelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"] = poisoned_everywhere(statement["predicate"])
    payload = json.dumps(statement).encode()
    envelope["payload"] = base64.b64encode(payload).decode()
    signed = key.sign(dsse.pae(envelope["payloadType"], payload))
    envelope["signatures"] = [{"sig": base64.b64encode(signed).decode()}]
    bundle.write_text(json.dumps(document))


def save_yaml(path: Path, document: Json) -> Path:
    """Write a document that people write by hand."""
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
