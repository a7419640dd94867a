"""Dims and relations of a domain as the profile states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Dim, Domain, Relation
from aotc.probing.sizes.diagnosis import range_contradiction
from aotc.records import replace


def stated_dim(spec: DimRange) -> Dim:
    """The dim of a stated range with bounds: the sizes that graphs accept."""
    low, high = spec.compiled_bounds()
    return Dim(
        min=low,
        max=high,
        opt=spec.optimal(),
        multiple_of=spec.multiple_of,
        buckets=spec.buckets,
        outside=spec.outside,
        pad_from=spec.min if spec.pads else None,
        origin="stated",
        tested=tuple(sorted({low, spec.optimal(), high, *spec.buckets})),
    )


def enforced_dim(dim: Dim, spec: DimRange) -> Dim:
    """A probed range that is enforced on calls, because the profile names the dim."""
    return replace(
        dim,
        opt=dim.opt if spec.opt is None else spec.opt,
        tested=dim.tested if spec.opt is None else tuple(sorted({*dim.tested, spec.opt})),
        outside=spec.outside,
        pad_from=spec.min if spec.pads else None,
        origin="stated",
    )


def agreeing_relations(
    relations: Sequence[Relation], stated: Mapping[str, DimRange]
) -> tuple[Relation, ...]:
    """`relations` without those that are not laws and contradict the `stated` ranges of their dims.

    Such a dim is independent, as stated.
    """
    bounded = {dim: spec for dim, spec in stated.items() if spec.bounded}
    return tuple(
        relation
        for relation in relations
        if relation.enforced
        or relation.dim not in stated
        or (
            bounded.keys() >= {relation.dim, *relation.terms}
            and range_contradiction((relation,), bounded, {}) is None
        )
    )


def enforced_relation(
    relation: Relation, domain: Domain, stated: Mapping[str, DimRange]
) -> Relation:
    """`relation` as it is enforced on calls.

    It is enforced if a term is padded: derived dims are padded along.  If it is not enforced, its
    dim is still held to its stated range.
    """
    dims = [domain.dims[term] for term in relation.terms if term in domain.dims]
    padded = any(dim.buckets or dim.pad_from is not None for dim in dims)
    enforced = relation.enforced or padded
    return replace(relation, enforced=enforced, stated=not enforced and relation.dim in stated)
