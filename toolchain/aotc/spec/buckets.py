"""Combinations of buckets: which of them a variant takes, and which a call is padded to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.spec.shapes import Domain

if TYPE_CHECKING:
    from aotc.spec.manifest import Manifest
    from aotc.spec.variant import Variant


def served_buckets(manifest: Manifest, variant: Variant) -> tuple[Mapping[str, int], ...]:
    """The combinations of buckets that calls are padded to for `variant`, smallest first.

    A static variant has one.  A dynamic variant of which the build made no static ones takes all
    of them itself: those that it captures, or if capture was refused, those of the domain.  The
    last one of a dynamic variant is empty, for calls that no bucket takes.
    """
    if variant.buckets:
        return (variant.buckets,)
    if variant.cuda_graphs is not None and variant.cuda_graphs.sizes:
        return (*captured_buckets(manifest.domain, variant.cuda_graphs.sizes), {})
    spec = variant.spec or variant.name
    made = [(other.spec or other.name, other.buckets) for other in manifest.variants]
    made += [(other.spec, other.buckets) for other in manifest.dropped]
    static = any(buckets and other == spec for other, buckets in made)
    return ({},) if static else (*by_size(bucket_combinations(manifest.domain)), {})


def captured_buckets(
    domain: Domain, captured: Sequence[Mapping[str, int]]
) -> tuple[Mapping[str, int], ...]:
    """The buckets of captured sizes, without the dims that have none; each once."""
    bucketed = [name for name, dim in domain.dims.items() if dim.buckets]
    found = {tuple((name, sizes[name]) for name in bucketed if name in sizes) for sizes in captured}
    return by_size([dict(key) for key in sorted(found) if key])


def by_size(combinations: Sequence[Mapping[str, int]]) -> tuple[Mapping[str, int], ...]:
    """`combinations` in rising order of their product."""
    return tuple(sorted(combinations, key=lambda buckets: math.prod(buckets.values())))


def largest_first(sizes: Iterable[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """The order of captures: the largest takes the most memory, which the others then use."""
    return sorted(sizes, key=lambda each: -math.prod(each.values()))


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
