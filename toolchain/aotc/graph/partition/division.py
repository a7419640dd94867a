"""A divided graph: what is recorded of it, parts as models of their own, and the hybrid graph."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from aotc.graph.partition.assignment import Assignment, Part, Sizes
from aotc.graph.view import (
    GraphView,
    NodeLinks,
    captured_values,
    declared_values,
    made_values,
    op_of,
)
from aotc.spec.providers import EP_CONTEXT, MICROSOFT
from aotc.spec.variant import (
    Certainty,
    Compute,
    Partition,
    PartitionReport,
    ProviderShare,
    RefusedNode,
    Transfer,
    TransferTotals,
)

if TYPE_CHECKING:
    import onnx

# The provider that makes a value, empty for the caller, and the graph whose value it is.
_Producer = tuple[str, GraphView]
# ONNX Runtime's key for a provider's own compatibility string, in a compiled model's metadata.
COMPATIBILITY_KEY = "ep_compatibility_info."


def partition_report(
    graph: GraphView,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    *,
    names: Sequence[str],
    compiled: Mapping[int, str],
    devices: Mapping[str, str],
    refusals: Iterable[RefusedNode],
    how: Certainty,
) -> PartitionReport:
    """Describe `assignment`; `sizes` are those at the optimal and at the maximum shape.

    `names` are those of its parts, `compiled` their files by index, and `devices` (`cpu` or `gpu`)
    by provider, first choice first.
    """
    parts, (opt, largest) = assignment.parts, sizes
    return PartitionReport(
        origin=how,
        providers=_shares(graph, assignment, sizes, tuple(devices)),
        partitions=(
            *(
                Partition(
                    name=name,
                    provider=part.provider,
                    nodes=len(part.nodes),
                    ops=_ops(op_of(graph.nodes[index]) for index in part.nodes),
                    file=compiled.get(number),
                    compiled=number in compiled,
                )
                for number, (name, part) in enumerate(zip(names, parts, strict=True))
            ),
            *_body_partitions(graph, assignment),
        ),
        alternations=max(0, sum(a.provider != b.provider for a, b in pairwise(parts))),
        transfers=tuple(
            Transfer(
                value=value,
                source=producer,
                target=consumer,
                dtype=graph.element_types.get(value, ""),
                bytes=opt.values.get(value),
                bytes_max=largest.values.get(value),
            )
            for value, producer, consumer in transferred_values(graph, assignment, devices)
        ),
        refusals=tuple(refusals),
    )


def total_transfers(found: Sequence[Transfer]) -> TransferTotals:
    """The sums of `found`; transfers of unknown size count, but add no bytes."""
    return TransferTotals(
        count=len(found),
        bytes=sum(tensor.bytes or 0 for tensor in found),
        bytes_max=sum(tensor.bytes_max or 0 for tensor in found),
    )


def _shares(
    graph: GraphView,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    providers: Sequence[str],
) -> tuple[ProviderShare, ...]:
    provider_by_node = assignment.providers
    nodes = [node.name for view in (graph, *graph.bodies) for node in view.nodes]
    nodes_by_provider = {
        p: [name for name in nodes if provider_by_node[name] == p] for p in providers
    }
    total_flops = sum(cost.flops for cost in sizes[0].nodes.values())
    counts = Counter(provider_by_node.values())
    parts = Counter(part.provider for part in assignment.parts)
    result = []
    for provider in providers:
        opt, largest = (_compute(nodes_by_provider[provider], at_shape) for at_shape in sizes)
        result.append(
            ProviderShare(
                provider=provider,
                nodes=counts[provider],
                partitions=parts[provider],
                node_share=round(counts[provider] / max(1, len(provider_by_node)), 4),
                flops_share=round(opt.flops / total_flops, 4) if total_flops else 0.0,
                opt=opt,
                max=largest,
            )
        )
    return tuple(result)


def _compute(names: Sequence[str], sizes: Sizes) -> Compute:
    costs = [sizes.nodes[name] for name in names if name in sizes.nodes]
    return Compute(
        flops=sum(cost.flops for cost in costs),
        bytes=sum(cost.bytes for cost in costs),
        unknown=sum(not cost.known for cost in costs),
    )


def _ops(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _body_partitions(graph: GraphView, assignment: Assignment) -> list[Partition]:
    """Groups of nodes in subgraphs that run on another provider than the subgraph's owner."""
    found: dict[tuple[str, str], list[str]] = {}
    for body in graph.bodies:
        for node in body.nodes:
            provider = assignment.providers[node.name]
            if provider != assignment.providers[body.owner]:
                found.setdefault((body.label, provider), []).append(op_of(node))
    return [
        Partition(
            name=f"body{number}",
            provider=provider,
            nodes=len(names),
            ops=_ops(names),
            subgraph=subgraph,
        )
        for number, ((subgraph, provider), names) in enumerate(found.items())
    ]


def transferred_values(
    graph: GraphView, assignment: Assignment, devices: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """All transferred values: name, producer's and consumer's provider, once for each consumer.

    Inputs and outputs of the caller count as well if the provider's device is not the CPU.  The
    same holds in control-flow subgraphs, which count as one iteration, and for both branches of an
    `If`.  `devices` is `cpu` or `gpu` by provider.  The caller has an empty name and uses the CPU.
    The consumer is the node that reads a value, not the control-flow node around it, which produces
    the inputs of its subgraphs and consumes their outputs.  Values with one name in two subgraphs
    are two values.
    """
    providers = assignment.providers
    producers: dict[GraphView, ChainMap[str, _Producer]] = {}
    found: dict[tuple[str, _Producer, str], None] = {}

    def read(value: str, producer: _Producer, consumer: str) -> None:
        source = producer[0]
        if devices[consumer] != "cpu" if not source else source != consumer:
            found[value, producer, consumer] = None

    for view in (graph, *graph.bodies):
        supplier = providers[view.holder] if view.around is not None else ""
        outer = producers[view.around].maps if view.around is not None else ()
        own: dict[str, _Producer] = dict.fromkeys(view.inputs, (supplier, view))
        for value, index in view.producers.items():
            own[value] = providers[view.nodes[index].name], view
        producers[view] = known = ChainMap(own, *outer)
        consumed = [(value, providers[node.name]) for node in view.nodes for value in node.input]
        if view.around is not None:
            consumed += [(value, supplier) for value in view.outputs]
        for value, consumer in consumed:
            if value in known and value not in view.initializers:
                read(value, known[value], consumer)
    result = [(value, producer[0], consumer) for value, producer, consumer in found]
    for value in graph.outputs:
        producer, _ = producers[graph].get(value, ("", graph))
        if producer and devices[producer] != "cpu":
            result.append((value, producer, ""))
    return result


# A partition as a model of its own, and the hybrid graph in which one node replaces it.


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
