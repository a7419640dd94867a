"""A model's references to files: the reader without ONNX finds all that ONNX's parser finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuzz_target import Target
from google.protobuf.message import DecodeError
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from aotc.spec.providers import EP_CONTEXT
from aotc.trust import references as onnx_references
from aotc.trust.references import (
    CACHE,
    EMBEDDED,
    CompiledPart,
    ExternalData,
    InMemory,
    MalformedModel,
    Reference,
    references,
)

WORDS = frozenset(
    {CACHE, EP_CONTEXT, EMBEDDED, onnx_references.SOURCE_MODEL}
    | {
        "location",
        "offset",
        "length",
        "checksum",
        "prepacked_",
        "com.microsoft",
        "If",
        "body",
        "weights.bin",
    }
)


class Parts:
    """A model whose parts are read one by one, as of a large file."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`."""
        if offset + count > self.size:
            raise MalformedModel("it ends early")
        return self._data[offset : offset + count]


def check(data: bytes) -> bool:
    """Every file that a full protobuf reader would open is found."""
    found = _references(data, whole=True)
    in_parts = _references(data, whole=False)
    if found is None:
        return False
    # The short cut past parts without a mark overlooks nothing, and may skip what is malformed.
    if in_parts is not None:
        assert _files(found) == _files(in_parts)
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return False
    entries = {entry for item in found if isinstance(item, ExternalData) for entry in item.entries}
    parts = {item.file for item in found if isinstance(item, CompiledPart)}
    for message in _messages(model):
        if isinstance(message, TensorProto):
            stated = [(entry.key, entry.value) for entry in message.external_data]
            if any(key == "location" for key, _ in stated):
                assert entries.issuperset(stated), (entries, stated)
        elif isinstance(message, NodeProto) and message.op_type == EP_CONTEXT:
            for file in _compiled(message):
                assert file in parts, (file, parts)
    return True


def _references(data: bytes, *, whole: bool) -> list[Reference] | None:
    if whole:
        source: Any = InMemory(data)
    else:
        source = Parts(data)
    before = onnx_references._READ_AT_ONCE_BYTES
    onnx_references._READ_AT_ONCE_BYTES = before if whole else -1  # type: ignore[misc]
    try:
        return list(references(source))
    except MalformedModel:
        return None
    finally:
        onnx_references._READ_AT_ONCE_BYTES = before  # type: ignore[misc]


def _files(found: list[Reference]) -> list[Reference]:
    """References that name a file."""
    return [
        item
        for item in found
        if isinstance(item, CompiledPart) or any(key == "location" for key, _ in item.entries)
    ]


def _messages(message: Any) -> Iterator[Any]:
    """A message and all nested ones, by protobuf's own descriptors."""
    yield message
    for _, value in message.ListFields():
        if hasattr(value, "ListFields"):
            yield from _messages(value)
        elif not isinstance(value, str | bytes | int | float):
            for item in value:
                if hasattr(item, "ListFields"):
                    yield from _messages(item)


def _compiled(node: NodeProto) -> Iterator[str]:
    """Files with a node's compiled bytes: those of a node that says they are not embedded."""
    if any(item.name == EMBEDDED and not item.i for item in node.attribute):
        for item in node.attribute:
            if item.name == CACHE and item.HasField("s"):
                yield item.s.decode("utf-8")


def _model(*nodes: NodeProto, tensors: tuple[TensorProto, ...] = ()) -> ModelProto:
    graph = helper.make_graph(list(nodes), "g", [], [], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _external(location: str = "weights.bin", **more: str) -> TensorProto:
    tensor = TensorProto(dims=[2], data_type=TensorProto.FLOAT, name="w")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _context(**attributes: Any) -> NodeProto:
    return helper.make_node("EPContext", [], ["y"], domain="com.microsoft", **attributes)


def seeds() -> Iterator[bytes]:
    """A reference in each possible place, and models without references."""
    inner = helper.make_graph([], "inner", [], [], [_external("inner.bin")])
    plain = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    constant = helper.make_node("Constant", [], ["c"], value=_external("constant.bin"))
    function = helper.make_function("d", "f", [], ["c"], [constant], [helper.make_opsetid("", 17)])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [0]),
        [2],
    )
    sparse.values.CopyFrom(_external("sparse.bin"))
    yield _model(tensors=(plain,)).SerializeToString()
    yield _model(tensors=(_external(offset="0", length="8"),)).SerializeToString()
    yield _model(tensors=(_external(prepacked_1="a|0;4;1"),)).SerializeToString()
    yield _model(constant).SerializeToString()
    yield _model(helper.make_node("If", ["x"], ["y"], then_branch=inner)).SerializeToString()
    by_function, by_sparse, by_training = _model(), _model(), _model()
    by_function.functions.append(function)
    by_sparse.graph.sparse_initializer.append(sparse)
    by_training.training_info.add().initialization.CopyFrom(inner)
    for item in (by_function, by_sparse, by_training):
        yield item.SerializeToString()
    yield _model(_context(ep_cache_context=b"bytes", embed_mode=1)).SerializeToString()
    yield _model(
        _context(ep_cache_context="a.bin", embed_mode=0, onnx_model_filename="m.onnx")
    ).SerializeToString()
    listed = AttributeProto(name=CACHE, type=AttributeProto.STRINGS, strings=[b"a", b"b"])
    node = _context(embed_mode=0)
    node.attribute.append(listed)
    yield _model(node).SerializeToString()
    yield b"\x3a\x05\x2a"


TARGET = Target("references", check, seeds, WORDS, 4096)
