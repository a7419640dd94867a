"""What a model holds, counted over the wire format: as onnx and its inliner count it."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.inliner
import pytest
from google.protobuf.descriptor import Descriptor
from onnx import TensorProto, helper
from refusals import refusal
from third_party_models import MODELS, needs_models

from aotc.base.errors import AotcError
from aotc.graph.view import every_node
from aotc.graph.wire_count import MAX_DEPTH, MESSAGES, Counted, MalformedWire, count, refuse_costly

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("l", 1)]


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])


def model(made: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    graph = helper.make_graph(made, "g", [value("x")], [value("y")])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=10)


def doubling(levels: int) -> onnx.ModelProto:
    """A model of a few kB whose functions each call the one before twice: 2^levels nodes."""
    functions, called, domain = [], "Neg", ""
    for level in range(levels):
        body = [
            helper.make_node(called, [one], [other], domain=domain)
            for one, other in (("a", "c"), ("c", "b"))
        ]
        functions.append(helper.make_function("l", f"F{level}", ["a"], ["b"], body, OPSETS))
        called, domain = f"F{level}", "l"
    return model([helper.make_node(called, ["x"], ["y"], domain=domain)], functions)


def test_every_message_of_onnx_is_known() -> None:
    """A new release of onnx may have messages that are not counted."""
    kinds: dict[str, str] = {}
    waiting: list[tuple[str, Descriptor]] = [("model", onnx.ModelProto.DESCRIPTOR)]
    while waiting:
        kind, message = waiting.pop()
        if kind in kinds:
            continue
        kinds[kind] = message.full_name
        if kind == "type":
            continue
        inner = {field.number: field for field in message.fields if field.message_type}
        assert set(inner) == set(MESSAGES.get(kind, {})), message.full_name
        waiting += [(MESSAGES[kind][number], field.message_type) for number, field in inner.items()]


@needs_models
@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.glob("*.onnx")))
def test_models_hold_what_onnx_says(name: str) -> None:
    data = (MODELS / name).read_bytes()
    found = count(data, name)
    assert found.nodes == found.inlined == len(list(every_node(onnx.ModelProto.FromString(data))))
    refuse_costly(data, name)


@pytest.mark.parametrize("levels", [1, 4, 9])
def test_calls_are_counted_as_what_they_stand_for(levels: int) -> None:
    made = doubling(levels)
    inlined = onnx.inliner.inline_local_functions(made)
    found = count(made.SerializeToString(), "m")
    assert (found.nodes, found.inlined) == (2 * levels + 1, len(inlined.graph.node))
    refuse_costly(made.SerializeToString(), "m")


def branching(domain: str) -> onnx.ModelProto:
    """A function that calls another in both branches of an If, under a name of `domain`."""
    branch = helper.make_graph(
        [helper.make_node("F", ["a"], ["b"], domain=domain)], "then", [], [value("b")]
    )
    test = helper.make_tensor("t", TensorProto.BOOL, [], [True])
    body = [
        helper.make_node("Constant", [], ["t"], value=test),
        helper.make_node("If", ["t"], ["c"], then_branch=branch, else_branch=branch),
    ]
    inner = helper.make_function(
        domain, "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])] * 5, OPSETS
    )
    outer = helper.make_function("l", "G", ["a"], ["c"], body, OPSETS)
    return model([helper.make_node("G", ["x"], ["y"], domain="l")] * 2, [inner, outer])


@pytest.mark.parametrize("domain", ["l", "", "ai.onnx"])
def test_calls_within_branches(domain: str) -> None:
    assert count(branching(domain).SerializeToString(), "m").inlined == 2 * (2 + 2 * 5)


def test_a_function_that_calls_itself() -> None:
    called = helper.make_node("F", ["a"], ["b"], domain="l")
    inner = helper.make_function("l", "F", ["a"], ["b"], [called], OPSETS)
    found = refusal(count, model([called], [inner]).SerializeToString(), "m")
    assert (found.code, found.what) == ("AOTC-I002", "a function of the model calls itself")


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def test_nesting_has_a_limit() -> None:
    content = b""
    for _ in range(10_000):
        content = field(1, field(5, field(6, content)))
    found = refusal(count, field(7, content), "m")
    assert (found.code, found.what) == ("AOTC-I002", "the model is nested too deeply")
    assert str(MAX_DEPTH) in found.expected


@pytest.mark.parametrize(
    "data",
    [
        b"<html></html>",
        b"\x00" * 20,
        field(7, b"\x0a\x40"),
        b"\x3a\x05ab",
        b"\x3a" + b"\xff" * 11,
        # A tag of more than 32 bits, whose upper bits some readers drop.
        b"\xba\x80\x80\x80\x80\x01\x00",
        field(7, field(1, field(5, b"\x0a\x01*\x3d\x00\x00"))),
        field(7, field(1, field(5, b"\x0a\x01*\x40\xff"))),
        # A group.
        b"\x0b\x0c",
    ],
)
def test_what_is_no_model(data: bytes) -> None:
    with pytest.raises(MalformedWire):
        count(data, "m")


def test_numbers_of_an_attribute_are_passed_over_at_once() -> None:
    """Between them and after them nothing is missed, whatever the form of their tags."""
    inner = field(6, field(1, b""))
    numbers = helper.make_attribute("f", [0.5] * 1000).SerializeToString()
    numbers += helper.make_attribute("i", [2**62, -1, 0] * 300).SerializeToString()
    for tag in (b"\x3d\x00\x00\x00\x00", b"\xbd\x00\x00\x00\x00\x00", b"\x40\x01", b"\xc0\x00\x3a"):
        data = field(7, field(1, field(5, numbers + tag + inner + numbers)))
        assert count(data, "m") == Counted(nodes=2, parts=5, inlined=2)


@pytest.mark.parametrize("given", ["dims", "packed"])
def test_tensors_of_very_many_dims(given: str) -> None:
    dims = b"\x08\x01" * 65 if given == "dims" else field(1, b"\x01" * 700)
    error: Any = refusal(count, field(7, field(5, dims)), "m")
    assert isinstance(error, AotcError)
    assert "dims" in error.what
