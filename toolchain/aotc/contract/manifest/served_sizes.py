"""The combinations of buckets that a variant takes: one, or all that it captures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.contract.shapes.bucket_choice import bucket_combinations
from aotc.contract.shapes.domain import Domain

if TYPE_CHECKING:
    from aotc.contract.manifest.document import Manifest
    from aotc.contract.manifest.variant import Variant


def served_buckets(manifest: Manifest, variant: Variant) -> tuple[Mapping[str, int], ...]:
    """The combinations of buckets that calls are padded to for `variant`, smallest first.

    A static variant has one.  A dynamic variant of which the build made no static ones takes all
    of them itself: those that it captures, or if capture was refused, those of the domain.  The
    last one of a dynamic variant is empty, for calls that no bucket takes.
    """
    if variant.buckets:
        return (variant.buckets,)
    if variant.graphs is not None and variant.graphs.sizes:
        return (*captured_buckets(manifest.domain, variant.graphs.sizes), {})
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
