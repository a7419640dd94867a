"""The graph pass, and the runner that checks its contract and records its effect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from aotc.contract.manifest.toolchain import PassRecord
from aotc.records import record, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def walk_graphs(model: onnx.ModelProto) -> Iterable[onnx.GraphProto]:
    """The main graph, and every control-flow subgraph in it."""
    pending = [model.graph]
    while pending:
        graph = pending.pop(0)
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.HasField("g") else attribute.graphs


def walk_nodes(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    """Every node of a model: main graph, control-flow subgraphs, functions."""
    pending = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        for node in pending.pop(0):
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g.node)
                pending.extend(subgraph.node for subgraph in attribute.graphs)
