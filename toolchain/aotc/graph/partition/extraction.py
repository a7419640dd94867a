"""A partition as a model of its own, and the hybrid graph in which one node replaces it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.graph.partition.assignment import Part
from aotc.graph.view import GraphView, NodeLinks, captured_values, declared_values, made_values
from aotc.spec.providers import EP_CONTEXT, MICROSOFT

if TYPE_CHECKING:
    import onnx


# ONNX Runtime's key for a provider's own compatibility string, in a compiled model's metadata.
COMPATIBILITY_KEY = "ep_compatibility_info."


def boundary_values(
    graph: GraphView, nodes: Sequence[int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Values that `nodes` read from outside, and values they make that are read outside.

    Both are in order of first use or production, without constants.
    """
    own = set(nodes)
    made = {value for index in nodes for value in graph.makes[index]}
    inside = made | graph.initializers
    read = [value for index in nodes for value in graph.reads[index] if value not in inside]
    written = [
        value
        for index in nodes
        for value in graph.makes[index]
        if value in graph.outputs or any(at not in own for at in graph.readers.get(value, ()))
    ]
    return tuple(dict.fromkeys(read)), tuple(written)


class Extractor:
    """Extracts partitions of one model, each as a model; looks up once what they all need.

    The model must not change meanwhile.
    """

    def __init__(self, model: onnx.ModelProto, graph: GraphView) -> None:
        self.model = model
        self.graph = graph
        self.value_types = _typed_values(model.graph)

    def extract(self, nodes: Sequence[int], name: str) -> onnx.ModelProto:
        """The model of some nodes of the main graph, with the constants that they read.

        External data stays where it is.  Raises `ValueError` if the type of a boundary value is
        unknown.
        """
        import onnx

        model, graph, value_types = self.model, self.graph, self.value_types
        inputs, outputs = boundary_values(graph, nodes)
        missing = [value for value in (*inputs, *outputs) if value not in value_types]
        if missing:
            raise ValueError(f"the type of {missing[0]!r} is not known")
        part = onnx.ModelProto()
        part.ir_version = model.ir_version
        part.opset_import.extend(model.opset_import)
        part.functions.extend(model.functions)
        part.graph.name = name
        part.graph.node.extend(model.graph.node[index] for index in nodes)
        part.graph.input.extend(value_types[value] for value in inputs)
        part.graph.output.extend(value_types[value] for value in outputs)
        keep_constants(part.graph, graph)
        made = set(made_values(part.graph)) & value_types.keys() - set(outputs)
        part.graph.value_info.extend(value_types[value] for value in sorted(made))
        return part


def keep_constants(target: onnx.GraphProto, source: GraphView) -> None:
    """Copy those constants of `source` to `target` that it reads, in the source's order.

    Its nodes, their subgraphs and its outputs count as reading.
    """
    # Removed first, because a value that the target defines is not one that it captures.
    del target.initializer[:]
    del target.sparse_initializer[:]
    read, (dense, sparse) = captured_values(target), source.constant_places
    graph = source.graph
    target.initializer.extend(
        graph.initializer[at] for at in sorted(dense[name] for name in read & dense.keys())
    )
    target.sparse_initializer.extend(
        graph.sparse_initializer[at] for at in sorted(sparse[name] for name in read & sparse.keys())
    )


def hybrid_model(
    model: onnx.ModelProto,
    graph: GraphView,
    parts: Sequence[Part],
    contexts: Mapping[int, tuple[str, Mapping[str, str | int]]],
    compatibility: Mapping[str, str],
) -> onnx.ModelProto:
    """`model` with an EPContext node for each part in `contexts` (index: node name, attributes).

    `parts` are in execution order.  The outputs of EPContext nodes get the known types, because
    ONNX Runtime cannot infer any.
    """
    import onnx

    value_types = _typed_values(model.graph)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    made: list[str] = []
    for index, part in enumerate(parts):
        if index not in contexts:
            result.graph.node.extend(model.graph.node[index] for index in part.nodes)
            continue
        name, attributes = contexts[index]
        inputs, outputs = boundary_values(graph, part.nodes)
        result.graph.node.append(
            onnx.helper.make_node(
                EP_CONTEXT,
                list(inputs),
                list(outputs),
                name=name,
                domain=MICROSOFT,
            )
        )
        result.graph.node[-1].attribute.extend(
            onnx.helper.make_attribute(key, value) for key, value in sorted(attributes.items())
        )
        made += outputs
    _check_order(result.graph, parts)
    keep_constants(result.graph, graph)
    _set_value_infos(result.graph, value_types, made)
    if all(opset.domain != MICROSOFT for opset in result.opset_import):
        result.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    for provider, text in sorted(compatibility.items()):
        result.metadata_props.add(key=f"{COMPATIBILITY_KEY}{provider}", value=text)
    return result


def _set_value_infos(
    graph: onnx.GraphProto, value_types: Mapping[str, onnx.ValueInfoProto], made: Collection[str]
) -> None:
    """Keep value infos of values that still exist, and require those of EPContext nodes."""
    stated = {value.name for value in (*graph.input, *graph.output)}
    remaining = set(made_values(graph)) & value_types.keys() - stated
    del graph.value_info[:]
    graph.value_info.extend(value_types[value] for value in sorted(remaining))
    for value in made:
        if value not in value_types:
            raise ValueError(f"the type of {value!r} is not known")


def _check_order(graph: onnx.GraphProto, parts: Sequence[Part]) -> None:
    """Check that every node comes after its producers; partitions guarantee it."""
    for index, before in enumerate(NodeLinks(graph.node).before):
        if before and before[-1] >= index:
            name = graph.node[index].name
            raise RuntimeError(f"{name} of {len(parts)} partitions comes before its inputs")


def _typed_values(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Values whose element type is known, by name."""
    found = {}
    for value in declared_values(graph):
        kind = value.type.WhichOneof("value")
        if kind is not None and (kind != "tensor_type" or value.type.tensor_type.elem_type):
            found[value.name] = value
    return found
