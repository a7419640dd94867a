"""What a model refers to, read without onnx, against what onnx reads of the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TrainingInfoProto,
)

from aotc.trust import references as onnx_references
from aotc.trust.references import (
    CACHE,
    EMBEDDED,
    SOURCE_MODEL,
    CompiledPart,
    ExternalData,
    InMemory,
    MalformedModel,
    Reference,
    references,
)

KINDS: dict[str, Any] = {
    "model": ModelProto,
    "training": TrainingInfoProto,
    "function": FunctionProto,
    "graph": GraphProto,
    "node": NodeProto,
    "attribute": AttributeProto,
    "sparse": SparseTensorProto,
    "tensor": TensorProto,
}
OP_TYPES = ("Gemm", "If", onnx_references.EP_CONTEXT, "EPContext2")
TEXTS = st.sampled_from(["", "a", "weights.bin", "../x", "location", "EPContext", "ä"])
KEYS = st.sampled_from(["location", "offset", "length", "checksum", "prepacked_0"])


class Lazy:
    """A model that is read in parts, as from a file."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.most = 0
        self._data = data

    def at(self, offset: int, count: int) -> bytes:
        self.most = max(self.most, count)
        if offset + count > self.size:
            raise MalformedModel("it ends early")
        return self._data[offset : offset + count]


def read_references(data: bytes) -> list[Reference]:
    return list(references(InMemory(data)))


def by_onnx(message: Any) -> Iterator[Reference]:
    """The same from onnx's own messages, whatever field leads there."""
    if isinstance(message, TensorProto):
        if message.external_data or message.data_location == TensorProto.EXTERNAL:
            yield ExternalData(tuple((entry.key, entry.value) for entry in message.external_data))
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                yield from by_onnx(each)
    if isinstance(message, NodeProto) and message.op_type == onnx_references.EP_CONTEXT:
        modes = [each.i for each in message.attribute if each.name == EMBEDDED]
        for each in message.attribute:
            texts = [each.s] if each.HasField("s") else []
            if each.name == SOURCE_MODEL or (each.name == CACHE and 0 in modes):
                for text in (*texts, *each.strings):
                    yield CompiledPart(each.name, text.decode())


@st.composite
def tensors(draw: st.DrawFn) -> TensorProto:
    tensor = TensorProto(name=draw(TEXTS), data_type=TensorProto.FLOAT, dims=draw(DIMS))
    if draw(st.booleans()):
        # An entry without a location refers to nothing: see the test of it.
        for key, value in [("location", draw(TEXTS)), *draw(st.lists(st.tuples(KEYS, TEXTS)))]:
            tensor.external_data.add(key=key, value=value)
    tensor.data_location = draw(st.sampled_from([0, 1]))
    tensor.raw_data = draw(st.binary(max_size=6))
    return tensor


@st.composite
def attributes(draw: st.DrawFn, depth: int) -> AttributeProto:
    name = draw(st.sampled_from([CACHE, SOURCE_MODEL, EMBEDDED, "body"]))
    attribute = AttributeProto(name=name)
    if draw(st.booleans()):
        attribute.i = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attribute.s = draw(TEXTS).encode()
    attribute.strings.extend(each.encode() for each in draw(st.lists(TEXTS, max_size=2)))
    attribute.tensors.extend(draw(st.lists(tensors(), max_size=1)))
    attribute.floats.extend(draw(st.lists(st.floats(width=32), max_size=2)))
    if draw(st.booleans()):
        attribute.t.CopyFrom(draw(tensors()))
    if draw(st.booleans()):
        attribute.sparse_tensor.values.CopyFrom(draw(tensors()))
        attribute.sparse_tensors.add().indices.CopyFrom(draw(tensors()))
    if depth:
        attribute.g.CopyFrom(draw(graphs(depth - 1)))
        attribute.graphs.extend(draw(st.lists(graphs(depth - 1), max_size=1)))
    return attribute


@st.composite
def nodes(draw: st.DrawFn, depth: int) -> NodeProto:
    node = NodeProto(op_type=draw(st.sampled_from(OP_TYPES)), input=draw(st.lists(TEXTS)))
    node.attribute.extend(draw(st.lists(attributes(depth), max_size=3)))
    return node


@st.composite
def graphs(draw: st.DrawFn, depth: int) -> GraphProto:
    graph = GraphProto(name=draw(TEXTS))
    graph.node.extend(draw(st.lists(nodes(depth), max_size=2)))
    graph.initializer.extend(draw(st.lists(tensors(), max_size=2)))
    for tensor in draw(st.lists(tensors(), max_size=1)):
        graph.sparse_initializer.add().values.CopyFrom(tensor)
    return graph


@st.composite
def models(draw: st.DrawFn) -> ModelProto:
    model = ModelProto(ir_version=10, graph=draw(graphs(1)), producer_name=draw(TEXTS))
    for _ in range(draw(st.integers(0, 1))):
        function = model.functions.add(name="f")
        function.node.extend(draw(st.lists(nodes(0), max_size=2)))
        function.attribute_proto.extend(draw(st.lists(attributes(0), max_size=1)))
        model.training_info.add(initialization=draw(graphs(0)), algorithm=draw(graphs(0)))
    return model


DIMS = st.lists(st.integers(0, 2**62), max_size=2)


@given(model=models())
@settings(max_examples=60)
def test_any_model_as_onnx_reads_it(model: ModelProto) -> None:
    wanted = Counter(by_onnx(model))
    data = model.SerializeToString()
    assert Counter(read_references(data)) == wanted
    for limit in (0, 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(onnx_references, "_READ_AT_ONCE_BYTES", limit)
            assert Counter(references(Lazy(data))) == wanted


def test_every_field_that_leads_to_a_reference_is_entered() -> None:
    """So that a release of ONNX with one more field is noticed."""
    leading = {TensorProto.DESCRIPTOR.full_name}
    while True:
        more = {
            kind.full_name
            for kind in ModelProto.DESCRIPTOR.file.message_types_by_name.values()
            for field in kind.fields
            if field.message_type is not None and field.message_type.full_name in leading
        }
        if more <= leading:
            break
        leading |= more
    names = {kind.DESCRIPTOR.full_name: name for name, kind in KINDS.items()}
    assert leading == set(names)
    for name, kind in KINDS.items():
        assert dict(onnx_references._MESSAGES.get(name, {})) == {
            field.number: names[field.message_type.full_name]
            for field in kind.DESCRIPTOR.fields
            if field.message_type is not None and field.message_type.full_name in leading
        }


def external(**entries: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def context(name: str = CACHE, file: str = "a.bin", mode: int | None = 0) -> NodeProto:
    node = NodeProto(op_type=onnx_references.EP_CONTEXT)
    node.attribute.add(name=name, s=file.encode(), type=AttributeProto.STRING)
    if mode is not None:
        node.attribute.add(name=EMBEDDED, i=mode, type=AttributeProto.INT)
    return node


def of_nodes(*made: NodeProto) -> bytes:
    return ModelProto(graph=GraphProto(node=made)).SerializeToString()


def rich_model() -> bytes:
    """References in every kind of place."""
    body = GraphProto(initializer=[external(location="body.bin", offset="8")], node=[context()])
    branch = NodeProto(op_type="If")
    branch.attribute.add(name="then_branch", g=body)
    branch.attribute.add(name="value", t=external(location="attribute.bin"))
    model = ModelProto(ir_version=10, graph=GraphProto(node=[branch]))
    model.graph.initializer.append(external(location="weights.bin", offset="0", length="16"))
    model.graph.sparse_initializer.add(values=external(location="s.bin"), dims=[3])
    function = model.functions.add(name="f", domain="d")
    function.node.append(context(SOURCE_MODEL, "source.onnx", None))
    function.attribute_proto.add(name="a", t=external(location="default.bin"))
    model.training_info.add(algorithm=body)
    return model.SerializeToString()


def test_a_model_that_ends_early() -> None:
    data = rich_model()
    wanted = read_references(data)
    assert len(wanted) == 9
    read = 0
    for end in range(len(data)):
        found: list[Reference] = []
        try:
            found.extend(references(InMemory(data[:end])))
        except MalformedModel:
            continue
        read += 1
        assert found == wanted[: len(found)]
    # The ends of its five fields, and lengths that are too short for any mark.
    assert read >= 5


@pytest.mark.parametrize("limit", [0, 1, 64, 10_000])
def test_a_large_model_is_read_in_parts(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_references, "_READ_AT_ONCE_BYTES", limit)
    filler = TensorProto(name="big", raw_data=bytes(2_000))
    data = rich_model() + ModelProto(graph=GraphProto(initializer=[filler])).SerializeToString()
    source = Lazy(data)
    assert list(references(source)) == read_references(data)
    assert source.most <= max(limit, 20)


def test_a_file_that_shrinks_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_references, "_READ_AT_ONCE_BYTES", 0)
    source = Lazy(rich_model()[:-5])
    source.size += 5
    with pytest.raises(MalformedModel):
        list(references(source))


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (context(), [CompiledPart(CACHE, "a.bin")]),
        (context(mode=1), []),
        (context(mode=None), []),
        (context(mode=2), [CompiledPart(CACHE, "a.bin")]),
        (context(mode=-1), [CompiledPart(CACHE, "a.bin")]),
        (context(SOURCE_MODEL, mode=1), [CompiledPart(SOURCE_MODEL, "a.bin")]),
        (context("notes"), []),
        (context(file=""), [CompiledPart(CACHE, "")]),
    ],
)
def test_compiled_parts(node: NodeProto, wanted: list[Reference]) -> None:
    assert read_references(of_nodes(node)) == wanted


def test_two_modes_of_embedding_count_as_files() -> None:
    node = context(mode=1)
    node.attribute.add(name=EMBEDDED, i=0)
    assert read_references(of_nodes(node)) == [CompiledPart(CACHE, "a.bin")]
    node.attribute[1].i, node.attribute[2].i = 0, 1
    assert read_references(of_nodes(node)) == [CompiledPart(CACHE, "a.bin")]


def test_a_mode_by_reference_may_be_either() -> None:
    node = context(mode=None)
    node.attribute.add(name=EMBEDDED, ref_attr_name="mode")
    assert read_references(of_nodes(node)) == [CompiledPart(CACHE, "a.bin")]


@pytest.mark.parametrize("name", [CACHE, SOURCE_MODEL])
def test_a_file_by_reference_is_not_known(name: str) -> None:
    node = NodeProto(op_type=onnx_references.EP_CONTEXT)
    node.attribute.add(name=name, ref_attr_name="which")
    with pytest.raises(MalformedModel):
        read_references(of_nodes(node))


def test_the_last_operator_type_counts() -> None:
    data = context().SerializeToString()
    for last, wanted in ((b"Relu", []), (b"EPContext", [CompiledPart(CACHE, "a.bin")])):
        node = data + field(4, b"Gemm") + field(4, last)
        assert read_references(field(7, field(1, node))) == wanted


def test_what_is_merged_is_seen_in_each_part() -> None:
    """A field that appears twice: protobuf merges the two messages."""
    first = GraphProto(initializer=[external(location="a")]).SerializeToString()
    second = GraphProto(initializer=[external(location="b")]).SerializeToString()
    found = read_references(field(7, first) + field(7, second))
    assert found == [ExternalData((("location", "a"),)), ExternalData((("location", "b"),))]


def test_an_entry_comes_as_it_is_written() -> None:
    tensor = external(location="a", offset="1")
    tensor.external_data.add(key="location", value="b")
    tensor.external_data.add(value="c")
    data = ModelProto(graph=GraphProto(initializer=[tensor])).SerializeToString()
    assert read_references(data) == [
        ExternalData((("location", "a"), ("offset", "1"), ("location", "b"), ("", "c")))
    ]


def varint(number: int, spare: int = 0) -> bytes:
    """A number, encoded with `spare` more bytes than necessary."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    if not spare:
        return bytes([*parts, number])
    return bytes([*parts, number | 0x80, *[0x80] * (spare - 1), 0])


def field(number: int, data: bytes, *, tag: int = 0, length: int = 0) -> bytes:
    """A length-delimited field; `tag` and `length` count extra bytes of these two numbers."""
    return varint(number << 3 | 2, tag) + varint(len(data), length) + data


def nested(parts: Iterable[int], data: bytes, **spare: int) -> bytes:
    for number in reversed(list(parts)):
        data = field(number, data, **spare)
    return data


TENSOR = external(location="a").SerializeToString()
FOUND = [ExternalData((("location", "a"),))]


@pytest.mark.parametrize("spare", [{"tag": 4}, {"length": 1}, {"length": 4}, {"tag": 1}])
def test_long_forms_of_numbers_hide_nothing(spare: dict[str, int]) -> None:
    assert read_references(nested([7, 5], TENSOR, **spare)) == FOUND


def test_a_long_form_of_the_place_of_data_hides_nothing() -> None:
    entry = field(1, b"location") + field(2, b"a")
    assert (
        read_references(nested([7, 5], field(13, entry) + varint(14 << 3) + varint(1, 2))) == FOUND
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x38" + b"\x80" * 10 + b"\x01", "64 bits"),
        (b"\x38" + b"\xff" * 9 + b"\x7f", "64 bits"),
        (b"\x80" * 20, "ends early"),
        (varint(7 << 3 | 2 | 1 << 32) + b"\x00", "more than 32 bits"),
        (varint(1 << 63 | 2) + b"\x00", "more than 32 bits"),
        (b"\x08\x09\x12\x04ORTM", "own format"),
        (b"\x3b\x3c", "wire type 3"),
        (b"\x3c", "wire type 4"),
        (b"\x3e", "wire type 6"),
        (b"\x3f", "wire type 7"),
        (b"\x02\x00", "without a number"),
        (b"\x3a\x05abc", "longer than its message"),
        (b"\x3a" + varint((1 << 64) - 1), "longer than its message"),
        (b"\x39abc", "longer than its message"),
        (b"\x3dabc", "longer than its message"),
        (b"\x38\x01", "field 7 of a model has wire type 0"),
        (nested([7, 1], b"\x20\x01"), "field 4 of a node has wire type 0"),
        (nested([7, 5], b"\x68\x01"), "field 13 of a tensor has wire type 0"),
        (nested([7, 5, 13], b"\x08\x01"), "field 1 of a entry has wire type 0"),
        (nested([7, 5, 13], field(2, b"\xff")), "UTF-8"),
        (nested([7, 5, 13], field(2, b"x" * (64 << 10) + b"x")), "65537 bytes"),
    ],
)
def test_what_is_not_a_model(data: bytes, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field by field: a model without any mark is not read at all."""
    monkeypatch.setattr(onnx_references, "_READ_AT_ONCE_BYTES", 0)
    with pytest.raises(MalformedModel, match=what):
        list(references(Lazy(data)))


def test_bytes_that_could_refer_to_nothing_are_not_walked() -> None:
    assert read_references(b"no model at all") == []


def test_depth() -> None:
    """As deep as protobuf allows; the deepest message that may refer to a file is a tensor."""

    def deep(levels: int) -> bytes:
        return nested([7, *[1, 5, 6] * levels, 5], TENSOR)

    assert read_references(deep(30)) == FOUND
    with pytest.raises(MalformedModel, match="deeper than 100"):
        read_references(deep(40))
    with pytest.raises(MalformedModel, match="deeper than 100"):
        read_references(deep(5_000))


@given(data=st.binary(max_size=60))
@settings(max_examples=300)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for limit in (0, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(onnx_references, "_READ_AT_ONCE_BYTES", limit)
            try:
                list(references(Lazy(field(2, b"location") + data)))
            except MalformedModel as error:
                assert str(error)
