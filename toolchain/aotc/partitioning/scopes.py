"""Shapes and element types of the values that each graph of a model can read.

A control-flow subgraph can read its own values and those of the graphs around it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aotc.contract.operator_domains import STANDARD
from aotc.partitioning.graph import subgraphs_of
from aotc.records import record

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]
# Loops nested deeper stay unknown unless the model declares their shapes.
_MAX_LOOP_NESTING: Final = 8


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
    fixed = model if stated else _infer(_model_at(model, dims))
    own, kinds = _shapes_and_types(fixed.graph, dims)
    main = Scope(fixed.graph.node, own, own, kinds)
    if all(
        not subgraphs_of(attribute) for node in model.graph.node for attribute in node.attribute
    ):
        return (main,)
    if stated:
        fixed = _infer(_without_declarations(model))
    for _ in range(_MAX_LOOP_NESTING):
        if not _enter_loops(fixed.graph, ChainMap(own), dims):
            break
        fixed = _infer(fixed)
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
    pending = [subgraph for _, subgraph in _subgraphs(copied.graph)]
    while pending:
        subgraph = pending.pop()
        del subgraph.value_info[:]
        pending += [inner for _, inner in _subgraphs(subgraph)]
    return copied


def _infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred shapes; unchanged if inference fails."""
    import onnx

    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
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
        for attribute in node.attribute:
            for subgraph in subgraphs_of(attribute):
                yield node, subgraph


def _shapes_and_types(
    graph: onnx.GraphProto, dims: Mapping[str, int]
) -> tuple[dict[str, Shape], dict[str, int]]:
    """Known shapes and element types of a graph's own values; named dims are taken from `dims`."""
    shapes: dict[str, Shape] = {}
    kinds: dict[str, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
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
