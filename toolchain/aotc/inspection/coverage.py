"""Which sizes were compared with the original model, and what recorded traffic would meet."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.served_sizes import served_buckets
from aotc.contract.manifest.variant import Variant
from aotc.contract.profile_terms import Traffic
from aotc.contract.results.reports import DimCoverage, ShapeReport, TrafficCoverage
from aotc.contract.shapes.bucket_choice import routed_first
from aotc.contract.shapes.domain import Dim, Domain
from aotc.errors import AotcError

if TYPE_CHECKING:
    from aotc.contract.traffic import RecordedTraffic

# At most this many refused sizes are listed, the most frequent first.
_MAX_LISTED = 10


def shape_report(manifest: Manifest) -> ShapeReport:
    """Shapes of the outputs, and for each free dim which sizes the build compared."""
    compared: dict[str, set[int]] = {name: set() for name in manifest.domain.dims}
    for variant in manifest.variants:
        for sizes in variant.parity.shapes:
            for name in compared.keys() & sizes.keys():
                compared[name].add(sizes[name])
    return ShapeReport(
        outputs=manifest.shapes,
        dims=tuple(
            _coverage(name, dim, sorted(compared[name]))
            for name, dim in manifest.domain.dims.items()
        ),
        learned=_learned_traffic(manifest.profile),
    )


def traffic_coverage(manifest: Manifest, recorded: RecordedTraffic) -> TrafficCoverage:
    """What the artifact does with each recorded request, by the same rules as `load`.

    Requests are matched with the buckets of the profile's first variant.
    Raises S020 if the traffic does not record a dim that varies.
    """
    domain = manifest.domain
    first = manifest.variants[0].spec or manifest.variants[0].name
    variants = [variant for variant in manifest.variants if (variant.spec or variant.name) == first]
    order = sorted(
        (
            (variant, buckets)
            for variant in variants
            for buckets in served_buckets(manifest, variant)
        ),
        key=lambda entry: (not entry[1], math.prod(entry[1].values())),
    )
    compared = {
        tuple(sorted(sizes.items())) for variant in variants for sizes in variant.parity.shapes
    }
    varying = [name for name, dim in domain.dims.items() if dim.buckets or dim.min < dim.max]
    missing = [name for name in varying if name not in recorded.dims]
    if missing:
        raise AotcError(
            "AOTC-S020",
            f"the recorded requests do not say the size of {missing[0]!r}",
            where=recorded.path,
            expected=", ".join(varying),
            found=", ".join(recorded.dims),
        )
    accepted, shares, compared_requests = 0, Counter[str](), 0
    taken_by, refused = Counter[str](), Counter[str]()
    given_elements = run_elements = 0
    for sizes, count in recorded.sizes():
        completed = _completed(domain, sizes)
        fit = _variant_for(domain, order, completed)
        if fit is None:
            refused[", ".join(f"{name}={size}" for name, size in sizes.items())] += count
            continue
        variant, buckets, wanted = fit
        accepted += count
        taken_by[variant.name] += count
        elements = _elements(manifest, completed)
        given_elements, run_elements = (
            given_elements + elements * count,
            run_elements + _elements(manifest, wanted) * count,
        )
        padded, routed = wanted != completed, len(order) > 1 and not buckets
        shares["padded" if padded else "routed" if routed else "exact"] += count
        compared_requests += count if tuple(sorted(completed.items())) in compared else 0
    total = recorded.requests
    return TrafficCoverage(
        path=recorded.path,
        sha256=recorded.sha256,
        requests=total,
        accepted=accepted / total,
        exact=shares["exact"] / total,
        padded=shares["padded"] / total,
        routed=shares["routed"] / total,
        compared=compared_requests / total,
        padding=(run_elements - given_elements) / max(given_elements, 1),
        variants={variant.name: taken_by[variant.name] for variant in variants},
        refused=dict(refused.most_common(_MAX_LISTED)),
    )


def _completed(domain: Domain, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with the dims that follow from them, and dims of one size if they are missing."""
    completed = {name: dim.min for name, dim in domain.dims.items() if dim.min == dim.max}
    completed |= sizes
    for relation in domain.relations:
        if relation.dim not in completed and all(term in completed for term in relation.terms):
            completed[relation.dim] = relation.value(completed)
    return completed


def _variant_for(
    domain: Domain,
    ordered: Sequence[tuple[Variant, Mapping[str, int]]],
    sizes: Mapping[str, int],
) -> tuple[Variant, Mapping[str, int], dict[str, int]] | None:
    stated = {
        name: size
        for name, size in sizes.items()
        if name in domain.dims and domain.dims[name].origin == "stated"
    }
    if not domain.accepts(stated):
        return None
    for variant, buckets in reversed(ordered) if routed_first(domain, sizes) else ordered:
        wanted = domain.padded_sizes(buckets, sizes)
        if wanted is not None:
            return variant, buckets, wanted
    # A probed dim beyond its range: a call counts it and runs it anyway.
    dynamic = next((variant for variant, buckets in ordered if not buckets), None)
    return (dynamic, {}, dict(sizes)) if dynamic is not None else None


def _elements(manifest: Manifest, sizes: Mapping[str, int]) -> int:
    return sum(
        math.prod(size if isinstance(size, int) else sizes.get(size, 1) for size in value.shape)
        for value in manifest.inputs
        if value.shape is not None
    )


def _coverage(name: str, dim: Dim, compared: Sequence[int]) -> DimCoverage:
    accepted = [size for size in compared if dim.accepts(size)]
    smallest = dim.min if dim.pad_from is None else min(dim.pad_from, dim.min)
    points = sorted({smallest, *compared, dim.max})
    spans = [(low, high) for low, high in itertools.pairwise(points) if high - low > 1]
    return DimCoverage(
        dim=name,
        sizes=dim.text(),
        compared=tuple(compared),
        share=min(1.0, len(accepted) / max(_accepted_sizes(dim), 1)),
        gap=max(spans, key=lambda span: span[1] - span[0], default=None),
    )


def _accepted_sizes(dim: Dim) -> int:
    """The number of sizes that callers may pass."""
    if dim.pad_from is not None:
        return dim.max - max(dim.pad_from, 1) + 1
    if dim.buckets and "route" not in dim.outside:
        return len(dim.buckets)
    on_grid = (dim.max - dim.min) // dim.multiple_of + 1 - len(dim.gaps)
    return on_grid + sum(not dim.spans(size) for size in dim.buckets)


def _learned_traffic(profile: Json) -> Traffic | None:
    stated = profile.get("traffic") if isinstance(profile, dict) else None
    try:
        return decode(Traffic, stated) if stated else None
    except ParseError:
        return None
