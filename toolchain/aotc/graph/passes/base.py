"""The graph pass, and the runner that checks its contract and records its effect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from aotc.base.records import record, values_of
from aotc.graph.view import (
    constant_names,
    declared_values,
    defined_names,
    every_graph,
    subgraphs,
)
from aotc.spec.variant import PassRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import onnx


@record
class Pass(ABC):
    """One rewrite of a graph; its options are the fields of the subclass.

    `requires` and `ensures` return what is wrong before and after, or nothing.  What they return
    is a bug of ours, not of the model.
    """

    name = "pass"

    def requires(self, model: onnx.ModelProto) -> str:
        """What the pass needs but the model lacks."""
        return ""

    @abstractmethod
    def apply(self, model: onnx.ModelProto) -> None:
        """Rewrite `model` in place."""

    def ensures(self, model: onnx.ModelProto) -> str:
        """What the pass promises but did not achieve."""
        return ""

    def options(self) -> dict[str, object]:
        """The options as plain data."""
        return values_of(self)


def run_passes(model: onnx.ModelProto, passes: Iterable[Pass]) -> tuple[PassRecord, ...]:
    """Apply passes to `model` in place, in order; raises `RuntimeError` if a contract is broken."""
    records = []
    for graph_pass in passes:
        before = len(model.graph.node)
        if complaint := graph_pass.requires(model):
            raise RuntimeError(f"pass {graph_pass.name} requires: {complaint}")
        graph_pass.apply(model)
        if complaint := graph_pass.ensures(model):
            raise RuntimeError(f"pass {graph_pass.name} does not ensure: {complaint}")
        after = len(model.graph.node)
        records.append(
            PassRecord(
                name=graph_pass.name,
                options=graph_pass.options(),
                nodes_before=before,
                nodes_after=after,
            )
        )
    return tuple(records)


def all_names(model: onnx.ModelProto) -> set[str]:
    """Every name of a value, a tensor or a node in the main graph and its subgraphs."""
    found: set[str] = set()
    for graph in every_graph(model):
        found |= {value.name for value in declared_values(graph)} | constant_names(graph)
        for node in graph.node:
            found.update((node.name, *node.input, *node.output))
    return found


def free_name(name: str, used: set[str]) -> str:
    """`name`, with `_` behind it until it is none of `used`, of which it is one then."""
    while name in used:
        name += "_"
    used.add(name)
    return name


def cast_node(source: str, target: str, kind: int, used: set[str]) -> onnx.NodeProto:
    """A Cast to the element type `kind`, under a name that is none of `used`."""
    import onnx

    name = free_name(f"cast_{target}", used)
    return onnx.helper.make_node("Cast", [source], [target], name=name, to=kind)


def set_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Let copies of `nodes`, which may be the graph's own, be all nodes of `graph`."""
    copied = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copied)


def drop_unread(model: onnx.ModelProto, among: Collection[str] | None = None) -> None:
    """Remove initializers that nothing reads, of all graphs; `among`: only those of these names."""
    graphs = list(every_graph(model))
    read = {name for graph in graphs for node in graph.node for name in node.input}
    read |= {value.name for graph in graphs for value in (*graph.input, *graph.output)}
    for graph in graphs:
        for index in reversed(range(len(graph.initializer))):
            name = graph.initializer[index].name
            if name not in read and (among is None or name in among):
                del graph.initializer[index]


def rename_read(nodes: Iterable[onnx.NodeProto], renamed: Mapping[str, str]) -> None:
    """Rename values where nodes and their subgraphs read them; `renamed` is new name by old."""
    for node in nodes:
        for at, name in enumerate(node.input):
            if name in renamed:
                node.input[at] = renamed[name]
        rename_captured(node, renamed)


def rename_captured(node: onnx.NodeProto, renamed: Mapping[str, str]) -> None:
    """Rename outer values in the subgraphs of a node that have no value of that name themselves."""
    for graph in subgraphs(node):
        own = defined_names(graph)
        outer = {name: new for name, new in renamed.items() if name not in own}
        if not outer:
            continue
        rename_read(graph.node, outer)
        for value in graph.output:
            if value.name in outer:
                value.name = outer[value.name]
