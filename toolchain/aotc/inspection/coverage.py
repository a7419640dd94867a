"""How much of an artifact's shapes was compared with the original model, and what traffic meets."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Json, ParseError, decode
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.variant import Variant
from aotc.contract.profile_terms import Traffic
from aotc.contract.results.reports import DimCoverage, ShapeReport, TrafficCoverage
from aotc.contract.shapes.domain import Dim, Domain
from aotc.errors import AotcError

if TYPE_CHECKING:
    from aotc.contract.traffic import Recorded

# Of the refused sizes, those met most are listed up to this many.
_LISTED = 10


def shape_report(manifest: Manifest) -> ShapeReport:
    """Shapes of the outputs, and the coverage of each free dim by the comparisons at build."""
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
        learned=_learned(manifest.profile),
    )


def traffic_coverage(manifest: Manifest, recorded: Recorded) -> TrafficCoverage:
    """What the artifact does with each recorded request, by the rules that `load` routes by.

    Requests are put to the buckets of the profile's first variant.
    """
    domain = manifest.domain
    first = manifest.variants[0].spec or manifest.variants[0].name
    variants = [each for each in manifest.variants if (each.spec or each.name) == first]
    order = sorted(variants, key=lambda each: (not each.buckets, math.prod(each.buckets.values())))
    compared = {tuple(sorted(sizes.items())) for each in variants for sizes in each.parity.shapes}
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
    accepted, shares, seen = 0, Counter[str](), 0
    taken, refused = Counter[str](), Counter[str]()
    given = run = 0
    for sizes, count in recorded.sizes():
        whole = _completed(domain, sizes)
        fit = _fit(domain, order, whole)
        if fit is None:
            refused[", ".join(f"{name}={size}" for name, size in sizes.items())] += count
            continue
        variant, wanted = fit
        accepted += count
        taken[variant.name] += count
        own = _elements(manifest, whole)
        given, run = given + own * count, run + _elements(manifest, wanted) * count
        padded, routed = wanted != whole, len(variants) > 1 and not variant.buckets
        shares["padded" if padded else "routed" if routed else "exact"] += count
        seen += count if tuple(sorted(whole.items())) in compared else 0
    total = recorded.requests
    return TrafficCoverage(
        path=recorded.path,
        sha256=recorded.sha256,
        requests=total,
        accepted=accepted / total,
        exact=shares["exact"] / total,
        padded=shares["padded"] / total,
        routed=shares["routed"] / total,
        compared=seen / total,
        padding=(run - given) / max(given, 1),
        variants={each.name: taken[each.name] for each in variants},
        refused=dict(refused.most_common(_LISTED)),
    )


def _completed(domain: Domain, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with what follows from them, and dims of one size where they are missing."""
    whole = {name: dim.min for name, dim in domain.dims.items() if dim.min == dim.max}
    whole |= sizes
    for relation in domain.relations:
        if relation.dim not in whole and all(term in whole for term in relation.terms):
            whole[relation.dim] = relation.value(whole)
    return whole


def _fit(
    domain: Domain, order: Sequence[Variant], sizes: Mapping[str, int]
) -> tuple[Variant, dict[str, int]] | None:
    needy = [dim for name, dim in domain.dims.items() if sizes.get(name) not in dim.buckets]
    routed_first = any(dim.outside[:1] == ("route",) for dim in needy)
    stated = {
        name: size
        for name, size in sizes.items()
        if name in domain.dims and domain.dims[name].origin == "stated"
    }
    if not domain.accepts(stated):
        return None
    for variant in reversed(order) if routed_first else order:
        wanted = domain.fitted(variant.buckets, sizes)
        if wanted is not None:
            return variant, wanted
    # A probed dim beyond its range: counted at a call, and run all the same.
    dynamic = next((each for each in order if not each.buckets), None)
    return (dynamic, dict(sizes)) if dynamic is not None and domain.accepts(stated) else None


def _elements(manifest: Manifest, sizes: Mapping[str, int]) -> int:
    return sum(
        math.prod(size if isinstance(size, int) else sizes.get(size, 1) for size in value.shape)
        for value in manifest.inputs
        if value.shape is not None
    )


def _coverage(name: str, dim: Dim, compared: Sequence[int]) -> DimCoverage:
    accepted = [size for size in compared if dim.accepts(size)]
    least = dim.min if dim.pad_from is None else min(dim.pad_from, dim.min)
    points = sorted({least, *compared, dim.max})
    spans = [(low, high) for low, high in itertools.pairwise(points) if high - low > 1]
    return DimCoverage(
        dim=name,
        sizes=dim.text(),
        compared=tuple(compared),
        share=min(1.0, len(accepted) / max(_accepted(dim), 1)),
        gap=max(spans, key=lambda span: span[1] - span[0], default=None),
    )


def _accepted(dim: Dim) -> int:
    """How many sizes callers may pass."""
    if dim.pad_from is not None:
        return dim.max - max(dim.pad_from, 1) + 1
    if dim.buckets and "route" not in dim.outside:
        return len(dim.buckets)
    on_grid = (dim.max - dim.min) // dim.multiple_of + 1 - len(dim.gaps)
    return on_grid + sum(not dim.spans(size) for size in dim.buckets)


def _learned(profile: Json) -> Traffic | None:
    stated = profile.get("traffic") if isinstance(profile, dict) else None
    try:
        return decode(Traffic, stated) if stated else None
    except ParseError:
        return None
