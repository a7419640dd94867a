"""Which nodes are suspected, by the error that is added where they compute."""

from __future__ import annotations

import math
from typing import Any

from aotc.precision.blame_search import Candidate, scored_candidates
from aotc.spec.evidence import NodeError


def error(node: str, added: float | None, **fields: Any) -> NodeError:
    return NodeError(
        node=node, op="MatMul", value=node, max_abs=1.0, max_rel=1.0, added=added, **fields
    )


def test_nodes_between_compared_values_share_the_score_of_the_later_one() -> None:
    errors = [error("b", 0.5, covers=("a", "b")), error("c", 0.25, covers=("c",))]
    assert scored_candidates(["a", "b", "c", "d"], errors) == [
        Candidate("a", 0.5),
        Candidate("b", 0.5),
        Candidate("c", 0.25),
        Candidate("d", -1.0),
    ]


def test_nan_out_of_finite_values_is_the_worst_and_what_stays_nan_is_not() -> None:
    errors = [error("a", None, passed=False), error("b", None, passed=True), error("c", 9.0)]
    assert [each.score for each in scored_candidates(["a", "b", "c"], errors)] == [
        math.inf,
        0.0,
        9.0,
    ]


def test_a_node_with_several_values_has_the_worst_score() -> None:
    errors = [error("a", 0.125), error("a", 2.0), error("a", 0.5)]
    assert scored_candidates(["a"], errors) == [Candidate("a", 2.0)]


def test_what_is_not_in_the_lower_precision_is_no_suspect() -> None:
    assert scored_candidates([], [error("a", 1.0)]) == []
