"""Which nodes seem to add most to the error, from values that were compared inside of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotc.blaming.smallest_set import Candidate
from aotc.contract.results.node_errors import NodeError


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


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else math.inf
    return error.added
