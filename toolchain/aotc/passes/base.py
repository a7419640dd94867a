"""What a graph pass is, and the runner that enforces its contract and records its effect."""

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
    """One rewrite of a graph. Its options are the fields of the subclass.

    `requires` and `ensures` return what is wrong before and after (empty: nothing);
    a complaint is a bug of ours, not of the model.
    """

    name = "pass"

    def requires(self, model: onnx.ModelProto) -> str:
        """What the pass needs and does not find."""
        return ""

    @abstractmethod
    def apply(self, model: onnx.ModelProto) -> None:
        """Rewrite `model` in place."""

    def ensures(self, model: onnx.ModelProto) -> str:
        """What the pass promised and did not bring about."""
        return ""

    def options(self) -> dict[str, object]:
        """The options as plain data."""
        return values_of(self)


def run_passes(model: onnx.ModelProto, passes: Iterable[Pass]) -> tuple[PassRecord, ...]:
    """Apply passes in order to `model`, in place; raises `RuntimeError` on a broken contract."""
    records = []
    for one in passes:
        before = len(model.graph.node)
        if complaint := one.requires(model):
            raise RuntimeError(f"pass {one.name} requires: {complaint}")
        one.apply(model)
        if complaint := one.ensures(model):
            raise RuntimeError(f"pass {one.name} does not ensure: {complaint}")
        after = len(model.graph.node)
        records.append(
            PassRecord(name=one.name, options=one.options(), nodes_before=before, nodes_after=after)
        )
    return tuple(records)


def walk_graphs(model: onnx.ModelProto) -> Iterable[onnx.GraphProto]:
    """The main graph, and every body of control flow in it."""
    pending = [model.graph]
    while pending:
        graph = pending.pop(0)
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.HasField("g") else attribute.graphs


def walk_nodes(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    """Every node of a model: main graph, bodies of control flow, functions."""
    pending = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        for node in pending.pop(0):
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g.node)
                pending.extend(body.node for body in attribute.graphs)
