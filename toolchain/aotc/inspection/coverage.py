"""How much of an artifact's shapes was compared with the original model, and what traffic meets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from aotc.contract.manifest import Manifest
from aotc.contract.parsing import Json, ParseError, decode
from aotc.contract.profile import Traffic
from aotc.contract.report import DimCoverage, ShapeReport
from aotc.contract.shapes import Dim


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


def _coverage(name: str, dim: Dim, compared: Sequence[int]) -> DimCoverage:
    if dim.buckets:
        every = len(dim.buckets)
        seen = sum(size in dim.buckets for size in compared)
    else:
        every = (dim.max - dim.min) // dim.multiple_of + 1 - len(dim.gaps)
        seen = sum(dim.allows(size) for size in compared)
    least = dim.min if dim.pad_from is None else min(dim.pad_from, dim.min)
    points = sorted({least, *compared, dim.max})
    spans = [(low, high) for low, high in itertools.pairwise(points) if high - low > 1]
    return DimCoverage(
        dim=name,
        sizes=dim.text(),
        compared=tuple(compared),
        share=min(1.0, seen / max(every, 1)),
        gap=max(spans, key=lambda span: span[1] - span[0], default=None),
    )


def _learned(profile: Json) -> Traffic | None:
    stated = profile.get("traffic") if isinstance(profile, dict) else None
    try:
        return decode(Traffic, stated) if stated else None
    except ParseError:
        return None
