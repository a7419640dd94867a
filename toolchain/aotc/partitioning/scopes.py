"""Shapes and element types of the values that each graph of a model sees, bodies included.

A body of control flow sees its own values and those of the graphs around it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aotc.contract.operator_domains import STANDARD
from aotc.partitioning.graph import bodies_of
from aotc.records import record

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]
# Loops inside of so many others stay unknown, where nothing is declared of them.
_NESTING: Final = 8


@record(kw_only=False)
class Scope:
    """One graph: its nodes, and known shapes and ONNX element types of all that it sees.

    `own` are the shapes of its own values, and not those of the graphs around it.
    """

    nodes: Sequence[onnx.NodeProto]
    own: Mapping[str, Shape]
    shapes: Mapping[str, Shape]
    types: Mapping[str, int]


def scopes(model: onnx.ModelProto, dims: Mapping[str, int], *, stated: bool) -> tuple[Scope, ...]:
    """The main graph first, then all bodies, with the named dims of inputs at `dims`.

    Of inner values of the main graph, what `model` declares counts with `stated` alone.  Bodies
    are inferred from the values around them, a loop's for its first iteration; there,
    declarations count for what inference does not find.
    """
    fixed = model if stated else _infer(_at(model, dims))
    own, kinds = _read(fixed.graph, dims)
    main = Scope(fixed.graph.node, own, own, kinds)
    if all(not bodies_of(attribute) for node in model.graph.node for attribute in node.attribute):
        return (main,)
    if stated:
        fixed = _infer(_undeclared(model))
    for _ in range(_NESTING):
        if not _enter_loops(fixed.graph, ChainMap(own), dims):
            break
        fixed = _infer(fixed)
    return main, *_inner(fixed.graph, model.graph, ChainMap(own), ChainMap(kinds), dims)


def _at(model: onnx.ModelProto, dims: Mapping[str, int]) -> onnx.ModelProto:
    """A copy at the given dims, of whose inner values nothing is declared."""
    fixed = _undeclared(model)
    del fixed.graph.value_info[:]
    fix_sizes(fixed.graph, dims)
    return fixed


def fix_sizes(graph: onnx.GraphProto, dims: Mapping[str, int]) -> None:
    """Write sizes of dims into the graph's inputs; what is declared of its outputs goes."""
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _undeclared(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which no inner values of bodies are declared, which inference would keep."""
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    pending = [body for _, body in _bodies(copied.graph)]
    while pending:
        body = pending.pop()
        del body.value_info[:]
        pending += [inner for _, inner in _bodies(body)]
    return copied


def _infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """Where inference fails, only what is declared is known."""
    import onnx

    with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    return model


def _enter_loops(
    graph: onnx.GraphProto, shapes: ChainMap[str, Shape], dims: Mapping[str, int]
) -> bool:
    """Give inputs of loops' bodies the shapes that they start with; whether any was missing.

    ONNX's inference leaves them unknown, as they may change from one iteration to the next.
    """
    found = False
    for node, body in _bodies(graph):
        if node.op_type == "Loop" and node.domain in STANDARD:
            first = [(), (), *(shapes.get(name) for name in node.input[2:])]
            for value, shape in zip(body.input, first, strict=False):
                tensor = value.type.tensor_type
                if shape is None or tensor.HasField("shape") or not tensor.elem_type:
                    continue
                tensor.shape.SetInParent()
                for size in shape:
                    tensor.shape.dim.add(dim_value=size)
                found = True
        own, _ = _read(body, dims)
        found |= _enter_loops(body, ChainMap(own, *shapes.maps), dims)
    return found


def _inner(
    graph: onnx.GraphProto,
    declared: onnx.GraphProto,
    shapes: ChainMap[str, Shape],
    kinds: ChainMap[str, int],
    dims: Mapping[str, int],
) -> Iterator[Scope]:
    """Scopes of the bodies in `graph`; `declared` is the same graph as the model has it."""
    for (_, body), (_, stated) in zip(_bodies(graph), _bodies(declared), strict=True):
        inferred, types = _read(body, dims)
        own, stated_types = _read(stated, dims)
        own |= inferred
        seen = ChainMap(own, *shapes.maps)
        known = ChainMap({**stated_types, **types}, *kinds.maps)
        yield Scope(body.node, own, seen, known)
        yield from _inner(body, stated, seen, known, dims)


def _bodies(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto]]:
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                yield node, body


def _read(
    graph: onnx.GraphProto, dims: Mapping[str, int]
) -> tuple[dict[str, Shape], dict[str, int]]:
    """Known shapes and element types of a graph's own values; named dims are those of `dims`."""
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
