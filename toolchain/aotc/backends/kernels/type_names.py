"""Types of a graph's values, by name, in the spelling of ONNX's schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# By attribute of `Constant`.
_CONSTANT_TYPES = {
    "value_float": "float",
    "value_floats": "float",
    "value_int": "int64",
    "value_ints": "int64",
    "value_string": "string",
    "value_strings": "string",
}


def stated_types(graph: onnx.GraphProto) -> dict[str, str]:
    """Types that the graph itself declares for inputs, outputs, initializers and values."""
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
    """Whether a node's output, here or in a subgraph, has no declared type."""
    types = {**outer, **stated_types(graph)}
    return any(
        any(name and name not in types for name in node.output)
        or any(lacks_types(subgraph, types) for _, subgraph in subgraphs(node))
        for node in graph.node
    )


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The subgraphs of a control-flow node, each with the attribute that holds it."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for subgraph in attribute.graphs:
            yield attribute.name, subgraph


def type_name(kind: onnx.TypeProto) -> str:
    """`tensor(float)`, `seq(tensor(int64))`, ...; "" if the type is not declared."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        element = kind.tensor_type.elem_type
        return f"tensor({_element(element)})" if element else ""
    if which == "sparse_tensor_type":
        element = kind.sparse_tensor_type.elem_type
        return f"sparse_tensor({_element(element)})" if element else ""
    if which == "sequence_type":
        return _wrapped_name("seq({})", kind.sequence_type.elem_type)
    if which == "optional_type":
        return _wrapped_name("optional({})", kind.optional_type.elem_type)
    if which == "map_type":
        key = _element(kind.map_type.key_type)
        return _wrapped_name(f"map({key},{{}})", kind.map_type.value_type)
    return ""


def constant_type(node: onnx.NodeProto) -> dict[str, str]:
    """The type of a `Constant`'s output, by its name; empty if it is not known."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return {node.output[0]: f"tensor({_element(attribute.t.data_type)})"}
        if kind := _CONSTANT_TYPES.get(attribute.name):
            return {node.output[0]: f"tensor({kind})"}
    return {}


def type_proto(name: str) -> onnx.TypeProto | None:
    """The type for a tensor's type name, with unknown shape; None for any other name."""
    import onnx

    element = name.removeprefix("tensor(").removesuffix(")").upper()
    if not name.startswith("tensor(") or element not in _element_numbers():
        return None
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = _element_numbers()[element]
    return kind


def _wrapped_name(spelling: str, inner: onnx.TypeProto) -> str:
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
