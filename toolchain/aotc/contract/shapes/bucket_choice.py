"""Combinations of buckets, and which of them a call is padded to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from aotc.contract.shapes.domain import Domain


def bucket_combinations(domain: Domain) -> list[dict[str, int]]:
    """Every combination of buckets, as sizes by dim; empty if no dim has buckets."""
    bucketed = {name: dim.buckets for name, dim in domain.dims.items() if dim.buckets}
    if not bucketed:
        return []
    return [
        dict(zip(bucketed, sizes, strict=True)) for sizes in itertools.product(*bucketed.values())
    ]


def routed_first(domain: Domain, sizes: Mapping[str, int]) -> bool:
    """Whether the dynamic graph takes a call of `sizes` at its own size, before any bucket does."""
    return any(
        dim.outside[:1] == ("route",)
        for name, dim in domain.dims.items()
        if dim.buckets and sizes.get(name) not in dim.buckets
    )


def sizes_in_graph(
    domain: Domain, served: Sequence[Mapping[str, int]], sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """The sizes at which a variant runs a call of `sizes`; None if it does not take the call.

    `served` are combinations of buckets, smallest first; an empty one stands for all other sizes.
    """
    for buckets in reversed(served) if routed_first(domain, sizes) else served:
        wanted = domain.padded_sizes(buckets, sizes)
        if wanted is not None:
            return wanted
    return None
