"""Dims of a domain, and what follows from them, as a profile states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Dim, Domain, Relation
from aotc.probing.sizes.diagnosis import range_contradiction


def stated_dim(spec: DimRange) -> Dim:
    """The sizes that graphs take of a stated range with bounds."""
    low, high = spec.compiled()
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
    """A probed range that calls are held to, as the profile names the dim."""
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
    """`relations` without those that are no laws and that `stated` ranges of their dims overrule.

    Such a dim goes its own way, as it is stated.
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
    """`relation` as calls are held to it.

    It is enforced where a term is padded: what follows is padded along.  Where it is not, its dim
    keeps to what is stated of it.
    """
    dims = [domain.dims[term] for term in relation.terms if term in domain.dims]
    padded = any(dim.buckets or dim.pad_from is not None for dim in dims)
    enforced = relation.enforced or padded
    return replace(relation, enforced=enforced, stated=not enforced and relation.dim in stated)
