"""Which dims are derived from others, inferred from how they can move."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aotc.contract.shapes.domain import Relation
from aotc.records import record


@record(kw_only=False)
class Move:
    """Dims that move together by multiples of `step`; the first is the one asked about."""

    dims: tuple[str, ...]
    step: int


def relations_of(
    base: Mapping[str, int],
    moves: Mapping[str, Move | None],
    bounded: Collection[str],
    stated: Collection[str] = (),
) -> tuple[Relation, ...]:
    """Relations among dims that only move together, at sizes `base`.

    Each set of dims that moves together is led by one dim that is in no other set, preferably one
    of `bounded`, then of `stated`; every further dim is the sum of those that lead its sets.
    """
    joint_moves: list[Move] = []
    for move in moves.values():
        known = move is None or any(set(move.dims) == set(joint.dims) for joint in joint_moves)
        if move is not None and len(move.dims) > 1 and not known:
            joint_moves.append(move)
    leads: dict[str, Move] = {}
    for joint in joint_moves:
        own = [
            d
            for d in moves
            if d in joint.dims and sum(d in other.dims for other in joint_moves) == 1
        ]
        own.sort(key=lambda dim: (dim not in bounded, dim not in stated))
        if own:
            leads[own[0]] = joint
    result = []
    for dim in moves:
        terms = tuple(lead for lead, joint in leads.items() if dim in joint.dims and dim != lead)
        if terms and dim not in leads:
            constant = base[dim] - sum(base[term] for term in terms)
            result.append(Relation(dim=dim, terms=terms, constant=constant))
    return tuple(result)
