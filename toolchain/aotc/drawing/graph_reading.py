"""The graph of a variant, read from its model in the payload; weights are not loaded.

The model is foreign and not verified, so a sandboxed worker parses it and infers its shapes: a file
that crashes or hangs the parser gives a reason code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from aotc.contract.codec.parsing import Json
from aotc.errors import AotcError
from aotc.records import field, record


@record
class DrawnNode:
    """A node of a main graph, in the order of execution."""

    name: str
    op: Annotated[str, "domain::op_type; without domain for ONNX's own"]
    inputs: Annotated[tuple[str, ...], "values that are no weights"] = ()
    outputs: tuple[str, ...] = ()
    weights: Annotated[tuple[str, ...], "initializers that it reads"] = ()
    flops: Annotated[int, "at the optimal sizes, by the formulas of `partitioning.compute`"] = 0
    inner: Annotated[tuple[str, ...], "names of the nodes of its subgraphs"] = ()


@record
class DrawnPart:
    """A partition: nodes of one provider, by their indices."""

    provider: str
    nodes: tuple[int, ...]


@record
class DrawnGraph:
    """A main graph; sizes are in bytes by value, those that shape inference finds."""

    nodes: tuple[DrawnNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[DrawnPart, ...] = ()
    sizes: Annotated[Mapping[str, int], "at the optimal sizes"] = field(default_factory=dict)
    sizes_max: Annotated[Mapping[str, int], "at the largest sizes"] = field(default_factory=dict)
    shapes: Annotated[Mapping[str, tuple[int, ...]], "at the optimal sizes"] = field(
        default_factory=dict
    )


@record
class GraphRequest:
    """A model to read: its bytes, the sizes of its dims, and the provider of each node by name."""

    model: bytes
    optimal: Mapping[str, int] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)


def read_graphs(requests: Sequence[GraphRequest]) -> list[DrawnGraph | AotcError]:
    """The graph of each model, or why it cannot be drawn (AOTC-I056).

    Raises AOTC-I018 and I043 where the operating system refuses the worker's files.
    """
    from aotc.engine.reading_limits import LIMITS
    from aotc.engine.worker_pool import Workers
    from aotc.files.work_folders import temporary_folder

    found: list[DrawnGraph | AotcError] = []
    with temporary_folder("drawing") as folder, Workers(LIMITS) as workers:
        for index, request in enumerate(requests):
            place = folder / f"graph-{index}"
            place.mkdir()
            (place / "model.onnx").write_bytes(request.model)
            try:
                done = workers.run(
                    f"{__name__}:read_graph_job",
                    {
                        "optimal": dict(request.optimal),
                        "largest": dict(request.largest),
                        "providers": dict(request.providers),
                    },
                    folder=place,
                )
                found.append(_graph(done.value))
            except AotcError as error:
                found.append(AotcError("AOTC-I056", "the graph cannot be read", found=error.line()))
    return found


def read_graph_job(request: Json) -> Json:
    """In the worker: the graph of `model.onnx` as JSON; see `read_graphs`."""
    import onnx

    from aotc.drawing.computed_shapes import with_known_values
    from aotc.drawing.stand_ins import with_stand_ins
    from aotc.partitioning.assignment import Rules, assign
    from aotc.partitioning.compute import flops_of, sizes_at
    from aotc.partitioning.graph import op_of, read_graph

    assert isinstance(request, dict)
    model = onnx.ModelProto.FromString(Path("model.onnx").read_bytes())
    graph = read_graph(model)
    inferred = with_stand_ins(model)
    optimal: Any = request["optimal"]
    largest: Any = request["largest"]
    sizes = sizes_at(with_known_values(inferred, optimal), {})
    sizes_max = sizes
    if largest != optimal:
        sizes_max = sizes_at(with_known_values(inferred, largest), {})
    stated: Any = request["providers"]
    providers = {node.name: stated.get(node.name, "") for node in graph.nodes}
    names = dict.fromkeys((*stated.values(), *providers.values()))
    inner = frozenset(node.name for node in graph.subgraph_nodes)
    claims = [
        (name, frozenset(node for node, found in providers.items() if found == name) | inner)
        for name in names
    ]
    assignment, _ = assign(graph, claims, Rules())
    weights = {tensor.name for tensor in model.graph.initializer}
    weights |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    made = {value for node in graph.nodes for value in node.outputs} | set(graph.inputs)
    values = made - weights
    nodes: list[Json] = []
    for node, seen in zip(model.graph.node, graph.nodes, strict=True):
        shapes = [sizes.shapes.get(name) if name else None for name in node.input]
        outputs = [sizes.shapes[name] for name in node.output if name in sizes.shapes]
        nodes.append(
            {
                "name": node.name,
                "op": op_of(node),
                "inputs": list(seen.inputs),
                "outputs": [name for name in node.output if name],
                "weights": [name for name in node.input if name in weights],
                "flops": flops_of(node.op_type, shapes, outputs) if outputs else 0,
                "inner": list(seen.inner_nodes),
            }
        )
    return {
        "nodes": nodes,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "parts": [[part.provider, list(part.nodes)] for part in assignment.parts],
        "sizes": {name: size for name, size in sizes.values.items() if name in values},
        "sizes_max": {name: size for name, size in sizes_max.values.items() if name in values},
        "shapes": {name: list(size) for name, size in sizes.shapes.items() if name in values},
    }


def _graph(value: Any) -> DrawnGraph:
    nodes = tuple(
        DrawnNode(
            name=node["name"],
            op=node["op"],
            inputs=tuple(node["inputs"]),
            outputs=tuple(node["outputs"]),
            weights=tuple(node["weights"]),
            flops=node["flops"],
            inner=tuple(node["inner"]),
        )
        for node in value["nodes"]
    )
    return DrawnGraph(
        nodes=nodes,
        inputs=tuple(value["inputs"]),
        outputs=tuple(value["outputs"]),
        parts=tuple(
            DrawnPart(provider=name, nodes=tuple(indices)) for name, indices in value["parts"]
        ),
        sizes=value["sizes"],
        sizes_max=value["sizes_max"],
        shapes={name: tuple(shape) for name, shape in value["shapes"].items()},
    )
