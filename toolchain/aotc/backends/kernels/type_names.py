"""Types of a graph's values, by name, spelled as ONNX spells them in schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# By attribute of a `Constant`.
_CONSTANT_TYPES = {
    "value_float": "float",
    "value_floats": "float",
    "value_int": "int64",
    "value_ints": "int64",
    "value_string": "string",
    "value_strings": "string",
}


def stated_types(graph: onnx.GraphProto) -> dict[str, str]:
    """What the graph says itself of its inputs, outputs, initializers and values."""
    found: dict[str, str] = {}
    for values in (graph.value_info, graph.output, graph.input):
        for value in values:
            if name := type_name(value.type):
                found[value.name] = name
    for tensor in graph.initializer:
        found[tensor.name] = f"tensor({_element(tensor.data_type)})"
    for sparse in graph.sparse_initializer:
        found[sparse.values.name] = f"tensor({_element(sparse.values.data_type)})"
    return found


def lacks_types(graph: onnx.GraphProto, outer: Mapping[str, str]) -> bool:
    """Whether a value that a node makes, here or in a body, is of unstated type."""
    types = {**outer, **stated_types(graph)}
    return any(
        any(name and name not in types for name in node.output)
        or any(lacks_types(body, types) for _, body in bodies(node))
        for node in graph.node
    )


def bodies(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The bodies of a control-flow node, with the attribute that each is in."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for body in attribute.graphs:
            yield attribute.name, body


def type_name(kind: onnx.TypeProto) -> str:
    """`tensor(float)`, `seq(tensor(int64))`, ...; empty where the type is not stated."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        element = kind.tensor_type.elem_type
        return f"tensor({_element(element)})" if element else ""
    if which == "sparse_tensor_type":
        element = kind.sparse_tensor_type.elem_type
        return f"sparse_tensor({_element(element)})" if element else ""
    if which == "sequence_type":
        return _wrapped("seq({})", kind.sequence_type.elem_type)
    if which == "optional_type":
        return _wrapped("optional({})", kind.optional_type.elem_type)
    if which == "map_type":
        key = _element(kind.map_type.key_type)
        return _wrapped(f"map({key},{{}})", kind.map_type.value_type)
    return ""


def constant_type(node: onnx.NodeProto) -> dict[str, str]:
    """The type of what a `Constant` makes, by its name; nothing where it is not known."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return {node.output[0]: f"tensor({_element(attribute.t.data_type)})"}
        if kind := _CONSTANT_TYPES.get(attribute.name):
            return {node.output[0]: f"tensor({kind})"}
    return {}


def type_proto(name: str) -> onnx.TypeProto | None:
    """The type that a tensor's type name stands for, of unknown shape; None for any other."""
    import onnx

    element = name.removeprefix("tensor(").removesuffix(")").upper()
    if not name.startswith("tensor(") or element not in _element_numbers():
        return None
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = _element_numbers()[element]
    return kind


def _wrapped(spelling: str, inner: onnx.TypeProto) -> str:
    name = type_name(inner)
    return spelling.format(name) if name else ""


@cache
def _element(number: int) -> str:
    import onnx

    try:
        return str(onnx.TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"unknown type {number}"


@cache
def _element_numbers() -> dict[str, int]:
    import onnx

    return dict(onnx.TensorProto.DataType.items())
