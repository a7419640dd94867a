"""Which dims follow from others, told by how they can move."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aotc.contract.shapes import Relation


@dataclass(frozen=True, slots=True)
class Move:
    """Dims that move together by multiples of `step`; the first is the one asked about."""

    dims: tuple[str, ...]
    step: int


def relations_of(
    base: Mapping[str, int],
    moves: Mapping[str, Move | None],
    stated: Collection[str],
) -> tuple[Relation, ...]:
    """Relations among dims that only move together, at sizes `base`.

    The dim that most others need follows from them; a stated one stays in the box if it can.
    """
    bound = {d: m for d, m in moves.items() if m is not None and len(m.dims) > 1}
    groups = _equal_groups(bound, stated)
    equal = {d for group in groups for d in group}
    result = [
        Relation(dim=dim, terms=(first,), constant=base[dim] - base[first])
        for first, *others in groups
        for dim in others
    ]
    bound = {d: m for d, m in bound.items() if d not in equal}
    derived: list[str] = []
    while True:
        open_ = [
            d for d, m in bound.items() if d not in derived and not set(m.dims[1:]) & set(derived)
        ]
        if not open_:
            break
        counts = {
            d: sum(d in bound[o].dims[1:] for o in open_) for o in open_ for d in bound[o].dims[1:]
        }
        rank = {d: (count, d not in stated) for d, count in counts.items()}
        most = max(rank.values())
        derived.append([d for d in moves if rank.get(d) == most][-1])
    for dim in derived:
        terms = tuple(
            d for d, m in bound.items() if d != dim and d not in derived and dim in m.dims
        )
        if terms:
            constant = base[dim] - sum(base[term] for term in terms)
            result.append(Relation(dim=dim, terms=terms, constant=constant))
    return tuple(result)


def _equal_groups(bound: Mapping[str, Move], stated: Collection[str]) -> list[list[str]]:
    """Three dims or more of which each needs all others to move; a stated one comes first."""
    groups: list[list[str]] = []
    for move in bound.values():
        members = set(move.dims)
        mutual = all(d in bound and set(bound[d].dims) == members for d in members)
        if len(members) > 2 and mutual and not any(members & set(group) for group in groups):
            groups.append(sorted(members, key=lambda d: (d not in stated, list(bound).index(d))))
    return groups
