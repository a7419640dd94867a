"""Which nodes seem to add most to the error, from values that were compared inside of a graph."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from aotc.blaming.smallest_set import Candidate
from aotc.contract.results.nodes.node_errors import NodeError, NodeErrors


def suspects(changed: Sequence[str], errors: Sequence[NodeError]) -> list[Candidate]:
    """The nodes `changed`, in that order, each scored by the error that is added where it computes.

    Between compared values all nodes have the score of the later one, as nothing tells them apart.
    What turns finite values into NaN or infinities is scored highest; what has no compared value,
    lowest.
    """
    scores: dict[str, float] = {}
    for error in errors:
        added = _added(error)
        for node in (error.node, *error.covers):
            scores[node] = max(scores.get(node, 0.0), added)
    return [Candidate(name, scores.get(name, -1.0)) for name in changed]


def named_nodes(changed: Collection[str], errors: NodeErrors) -> tuple[str, str]:
    """The first and the worst node; where a value is of several nodes, that of `changed`.

    A product and the sum after it may be one node of the variant: what is inexact is the product.
    """

    def named(node: str) -> str:
        found = errors.of_node(node)
        covers = found.covers if found is not None else ()
        inexact = [name for name in covers if name in changed]
        return node if node in inexact or not inexact else inexact[-1]

    return named(errors.first), named(errors.worst)


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else math.inf
    return error.added
