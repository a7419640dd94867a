"""Nodes that move to the next provider because a part with them could not be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aotc.backends.base import names_in_message
from aotc.contract.finding import Finding
from aotc.contract.manifest.divided_graph import RefusedNode
from aotc.errors import AotcError
from aotc.partitioning.assignment import Part
from aotc.partitioning.graph import GraphNode, PartitionGraph

# In these rounds single nodes move to the next provider; after them, complete partitions.
_MAX_ROUNDS: Final = 6


class CompileFailures:
    """The nodes that move to the next provider because a part with them could not be compiled."""

    def __init__(
        self, graph: PartitionGraph, variant: str, refusals: Sequence[RefusedNode] = ()
    ) -> None:
        """`refusals` are those of nodes that were not claimed."""
        self._graph = graph
        self._variant = variant
        self.refused: dict[str, set[str]] = {}
        self.refusals = list(refusals)
        self.findings: list[Finding] = []

    def refuse_nodes(self, part: Part, error: AotcError, attempt: int) -> None:
        """Refuse those nodes of a part that its failure names; all of them if it names none."""
        nodes = {self._graph.nodes[index].name: self._graph.nodes[index] for index in part.nodes}
        text = f"{error.what}: {error.found}"
        left = _nodes_named_in(text, nodes) if attempt < _MAX_ROUNDS else frozenset()
        left = left or _ort_operators(nodes) or frozenset(nodes)
        refused = self.refused.setdefault(part.provider, set())
        refused.update(left)
        # The details of a crash or a hang would differ the next time.
        reason = error.found if error.code == "AOTC-P005" and error.found else error.what
        for name in [candidate for candidate in nodes if candidate in left]:
            refused.update(nodes[name].inner_nodes)
            self.refusals.append(
                RefusedNode(
                    node=name,
                    op=nodes[name].op,
                    provider=part.provider,
                    reason=f"could not be compiled: {reason}"[:300],
                )
            )
        self.findings.append(
            Finding(
                code="AOTC-P006",
                what=f"{part.provider} could not compile {len(nodes)} nodes ({error.code}: "
                f"{reason[:600]}); {len(left)} are left to the next provider",
                where=f"variant {self._variant}",
            )
        )


def _nodes_named_in(text: str, nodes: Mapping[str, GraphNode]) -> frozenset[str]:
    """Nodes that a message names, by their names or by their outputs."""
    made = {value: name for name, node in nodes.items() for value in node.outputs}
    words = names_in_message(text, {**nodes, **made})
    return frozenset(made.get(word, word) for word in words)


def _ort_operators(nodes: Mapping[str, GraphNode]) -> frozenset[str]:
    """Nodes of ONNX Runtime's own operators, which other providers misread most often."""
    found = frozenset(name for name, node in nodes.items() if node.op.startswith("com.microsoft"))
    return found if len(found) < len(nodes) else frozenset()
