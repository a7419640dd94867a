"""Candidates whose variants are the same: the time of one is that of all.

So it is with images first or last in a graph without convolutions, or with fusion where nothing
matches.  Timed apart, noise would choose between them.
"""

from __future__ import annotations

import filecmp
from collections.abc import Mapping

from aotc.contract.results.tuning import TuningCandidate
from aotc.stages.types import LoweredModel


def first_equals(
    lowered: Mapping[TuningCandidate, LoweredModel],
) -> dict[TuningCandidate, TuningCandidate]:
    """For each candidate the first one with the same graph, weights, session and providers."""
    found: dict[TuningCandidate, TuningCandidate] = {}
    for candidate, item in lowered.items():
        firsts = dict.fromkeys(found.values())
        found[candidate] = next(
            (first for first in firsts if _is_same(lowered[first], item)), candidate
        )
    return found


def _is_same(one: LoweredModel, other: LoweredModel) -> bool:
    stated = (one.session, one.providers, one.files, len(one.contexts))
    if stated != (other.session, other.providers, other.files, len(other.contexts)):
        return False
    pairs = [
        (one.model, other.model),
        *((one.weights / name, other.weights / name) for name in one.files),
        *zip(one.contexts, other.contexts, strict=True),
    ]
    return all(filecmp.cmp(left, right, shallow=False) for left, right in pairs)
