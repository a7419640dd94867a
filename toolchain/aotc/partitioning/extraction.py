"""A partition as a model of its own, and the hybrid graph in which one node stands for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.contract.operator_domains import EP_CONTEXT, MICROSOFT
from aotc.partitioning.assignment import Part
from aotc.partitioning.graph import PartitionGraph, outer_values

if TYPE_CHECKING:
    import onnx

# ONNX Runtime's key for a provider's own compatibility string, in a compiled model's metadata.
COMPATIBILITY_KEY = "ep_compatibility_info."


def borders(graph: PartitionGraph, nodes: Sequence[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Values that the nodes read from outside, and those of theirs that are read outside.

    Both in order of first use or making; constants are not among them.
    """
    own = set(nodes)
    made = {value for index in nodes for value in graph.nodes[index].outputs}
    read = [value for index in nodes for value in graph.nodes[index].inputs if value not in made]
    readers = graph.readers
    written = [
        value
        for index in nodes
        for value in graph.nodes[index].outputs
        if value in graph.final or any(each not in own for each in readers.get(value, ()))
    ]
    return tuple(dict.fromkeys(read)), tuple(written)


class Extractor:
    """Takes parts out of one model; what it is asked for again and again is looked up once.

    The model must not change while it is used.
    """

    def __init__(self, model: onnx.ModelProto, graph: PartitionGraph) -> None:
        self.model = model
        self.graph = graph
        self.known = _values(model.graph)
        self._constants = {t.name: (i, t) for i, t in enumerate(model.graph.initializer)}
        self._sparse = {t.values.name: (i, t) for i, t in enumerate(model.graph.sparse_initializer)}

    def extract(self, nodes: Sequence[int], name: str) -> onnx.ModelProto:
        """The model of some nodes of the main graph, with the constants that they read.

        External data stays where it is.  Raises `ValueError` where a border's type is unknown.
        """
        import onnx

        model, graph, known = self.model, self.graph, self.known
        inputs, outputs = borders(graph, nodes)
        missing = [value for value in (*inputs, *outputs) if value not in known]
        if missing:
            raise ValueError(f"the type of {missing[0]!r} is not known")
        part = onnx.ModelProto()
        part.ir_version = model.ir_version
        part.opset_import.extend(model.opset_import)
        part.functions.extend(model.functions)
        part.graph.name = name
        part.graph.node.extend(model.graph.node[index] for index in nodes)
        part.graph.input.extend(known[value] for value in inputs)
        part.graph.output.extend(known[value] for value in outputs)
        self.keep_constants(part.graph)
        made = {value for index in nodes for value in graph.nodes[index].outputs} - set(outputs)
        part.graph.value_info.extend(known[value] for value in sorted(made & known.keys()))
        return part

    def keep_constants(self, target: onnx.GraphProto) -> None:
        """Give `target` those constants of the model that it reads, in the model's order.

        Its nodes, their bodies, and its outputs read.
        """
        # First, as what the target has is none of the values that it wants.
        del target.initializer[:]
        del target.sparse_initializer[:]
        read = outer_values(target) - {value.name for value in target.input}
        kept = sorted((self._constants[name] for name in read if name in self._constants), key=_at)
        sparse = sorted((self._sparse[name] for name in read if name in self._sparse), key=_at)
        target.initializer.extend(tensor for _, tensor in kept)
        target.sparse_initializer.extend(tensor for _, tensor in sparse)


def _at(entry: tuple[int, object]) -> int:
    return entry[0]


def extract(
    model: onnx.ModelProto, graph: PartitionGraph, nodes: Sequence[int], name: str
) -> onnx.ModelProto:
    """One part of `model`; an `Extractor` takes many.  Raises `ValueError` as it does."""
    return Extractor(model, graph).extract(nodes, name)


def hybrid(
    model: onnx.ModelProto,
    graph: PartitionGraph,
    parts: Sequence[Part],
    contexts: Mapping[int, tuple[str, Mapping[str, str | int]]],
    compatibility: Mapping[str, str],
) -> onnx.ModelProto:
    """`model` with an EPContext node for each part in `contexts` (index: node name, attributes).

    `parts` stand in order of execution.  Outputs of EPContext nodes get the types that are known,
    as ONNX Runtime can infer none.
    """
    import onnx

    extractor = Extractor(model, graph)
    known = extractor.known
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    made: list[str] = []
    for index, part in enumerate(parts):
        if index not in contexts:
            result.graph.node.extend(model.graph.node[each] for each in part.nodes)
            continue
        name, attributes = contexts[index]
        inputs, outputs = borders(graph, part.nodes)
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
    _sort(result.graph, parts)
    extractor.keep_constants(result.graph)
    _restate(result.graph, known, made)
    if all(each.domain != MICROSOFT for each in result.opset_import):
        result.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    for provider, text in sorted(compatibility.items()):
        result.metadata_props.add(key=f"{COMPATIBILITY_KEY}{provider}", value=text)
    return result


def _restate(
    graph: onnx.GraphProto, known: Mapping[str, onnx.ValueInfoProto], made: Collection[str]
) -> None:
    """Keep value infos of values that are still made, and state those of EPContext nodes."""
    outputs = {value.name for value in graph.output}
    inputs = {value.name for value in graph.input}
    stays = {value for node in graph.node for value in node.output}
    del graph.value_info[:]
    graph.value_info.extend(
        known[value]
        for value in sorted(stays & known.keys())
        if value not in outputs and value not in inputs
    )
    for value in made:
        if value not in known:
            raise ValueError(f"the type of {value!r} is not known")


def _sort(graph: onnx.GraphProto, parts: Sequence[Part]) -> None:
    """Check that every node stands after those that it reads of; parts guarantee it."""
    producers = {value: i for i, node in enumerate(graph.node) for value in node.output if value}
    for index, node in enumerate(graph.node):
        if any(producers.get(value, -1) >= index for value in node.input):
            raise RuntimeError(f"{node.name} of {len(parts)} partitions stands before its inputs")


def _values(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Values whose element type is known."""
    found = {}
    for value in (*graph.value_info, *graph.output, *graph.input):
        kind = value.type.WhichOneof("value")
        if kind is not None and (kind != "tensor_type" or value.type.tensor_type.elem_type):
            found[value.name] = value
    return found
