"""Types and shapes of the values that each graph of a model can read, by name.

A control-flow subgraph can read its own values and those of the graphs around it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from aotc.base.records import record
from aotc.graph.view import declared_values, has_subgraphs, inner_graphs, subgraphs
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx


Shape = tuple[int, ...]
# Loops nested deeper stay unknown unless the model declares their shapes.
_MAX_LOOP_NESTING: Final = 8
# By attribute of `Constant`.
_CONSTANT_TYPES = {
    "value_float": "float",
    "value_floats": "float",
    "value_int": "int64",
    "value_ints": "int64",
    "value_string": "string",
    "value_strings": "string",
}


@record(kw_only=False)
class Scope:
    """One graph: its nodes, and the known shapes and ONNX element types of all it can read.

    `own` are the shapes of its own values, without those of the graphs around it.
    """

    nodes: Sequence[onnx.NodeProto]
    own: Mapping[str, Shape]
    shapes: Mapping[str, Shape]
    types: Mapping[str, int]


def scopes(model: onnx.ModelProto, dims: Mapping[str, int], *, stated: bool) -> tuple[Scope, ...]:
    """The main graph, then all subgraphs, with the named dims of inputs at the sizes `dims`.

    What `model` declares of the main graph's inner values is used only with `stated`.  Subgraphs
    are inferred from the values around them, those of a loop for its first iteration; there,
    declarations are used for what inference does not find.
    """
    fixed = model if stated else inferred(_model_at(model, dims))
    own, kinds = _shapes_and_types(fixed.graph, dims)
    main = Scope(fixed.graph.node, own, own, kinds)
    if not any(map(has_subgraphs, model.graph.node)):
        return (main,)
    if stated:
        fixed = inferred(_without_declarations(model))
    for _ in range(_MAX_LOOP_NESTING):
        if not _enter_loops(fixed.graph, ChainMap(own), dims):
            break
        fixed = inferred(fixed)
    return main, *_subgraph_scopes(fixed.graph, model.graph, ChainMap(own), ChainMap(kinds), dims)


def _model_at(model: onnx.ModelProto, dims: Mapping[str, int]) -> onnx.ModelProto:
    """A copy with the inputs at `dims`, and without declarations of inner values."""
    fixed = _without_declarations(model)
    del fixed.graph.value_info[:]
    fix_sizes(fixed.graph, dims)
    return fixed


def fix_sizes(graph: onnx.GraphProto, dims: Mapping[str, int]) -> None:
    """Write the sizes `dims` into the graph's inputs, and remove the declared shapes of outputs."""
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _without_declarations(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without declarations of inner values in subgraphs, which inference would keep."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for _, subgraph in inner_graphs(copied.graph):
        del subgraph.value_info[:]
    return copied


def inferred(model: onnx.ModelProto, *, by_values: bool = True) -> onnx.ModelProto:
    """The model with inferred types and shapes; unchanged if ONNX's inference fails.

    `by_values`: also by the values of shapes, as far as nodes compute them of known sizes.
    """
    import onnx

    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return onnx.shape_inference.infer_shapes(model, data_prop=by_values)
    return model


def _enter_loops(
    graph: onnx.GraphProto, shapes: ChainMap[str, Shape], dims: Mapping[str, int]
) -> bool:
    """Give the inputs of loops' subgraphs their initial shapes; whether any was missing.

    ONNX's inference leaves them unknown, because they may change between iterations.
    """
    found = False
    for node, subgraph in _subgraphs(graph):
        if node.op_type == "Loop" and node.domain in STANDARD:
            first = [(), (), *(shapes.get(name) for name in node.input[2:])]
            for value, shape in zip(subgraph.input, first, strict=False):
                tensor = value.type.tensor_type
                if shape is None or tensor.HasField("shape") or not tensor.elem_type:
                    continue
                tensor.shape.SetInParent()
                for size in shape:
                    tensor.shape.dim.add(dim_value=size)
                found = True
        own, _ = _shapes_and_types(subgraph, dims)
        found |= _enter_loops(subgraph, ChainMap(own, *shapes.maps), dims)
    return found


def _subgraph_scopes(
    graph: onnx.GraphProto,
    declared: onnx.GraphProto,
    shapes: ChainMap[str, Shape],
    kinds: ChainMap[str, int],
    dims: Mapping[str, int],
) -> Iterator[Scope]:
    """Scopes of the subgraphs in `graph`; `declared` is the same graph as in the model."""
    for (_, subgraph), (_, stated) in zip(_subgraphs(graph), _subgraphs(declared), strict=True):
        inferred, types = _shapes_and_types(subgraph, dims)
        own, stated_types = _shapes_and_types(stated, dims)
        own |= inferred
        seen = ChainMap(own, *shapes.maps)
        known = ChainMap({**stated_types, **types}, *kinds.maps)
        yield Scope(subgraph.node, own, seen, known)
        yield from _subgraph_scopes(subgraph, stated, seen, known, dims)


def _subgraphs(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto]]:
    for node in graph.node:
        for subgraph in subgraphs(node):
            yield node, subgraph


def _shapes_and_types(
    graph: onnx.GraphProto, dims: Mapping[str, int]
) -> tuple[dict[str, Shape], dict[str, int]]:
    """Known shapes and element types of a graph's own values; named dims are taken from `dims`."""
    shapes: dict[str, Shape] = {}
    kinds: dict[str, int] = {}
    for value in declared_values(graph):
        tensor = value.type.tensor_type
        if tensor.elem_type:
            kinds[value.name] = tensor.elem_type
        if tensor.HasField("shape"):
            sizes = [
                dim.dim_value if dim.HasField("dim_value") else dims.get(dim.dim_param)
                for dim in tensor.shape.dim
            ]
            known = tuple(size for size in sizes if size is not None)
            if len(known) == len(sizes):
                shapes[value.name] = known
    for initializer in graph.initializer:
        shapes[initializer.name] = tuple(initializer.dims)
        kinds[initializer.name] = initializer.data_type
    return shapes, kinds


def stated_types(graph: onnx.GraphProto) -> dict[str, str]:
    """Types that the graph itself declares for inputs, outputs, initializers and values."""
    found: dict[str, str] = {}
    for value in declared_values(graph):
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
        or any(lacks_types(subgraph, types) for subgraph in subgraphs(node))
        for node in graph.node
    )


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
