"""Shares of a fleet: which cells a shard builds, each with cells of one kind of machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from aotc.spec.codec import encode
from aotc.spec.fleet import Cell, Needs
from aotc.spec.json import canonical_sha256

MOST_SHARDS: Final = 100_000
"""As many as a fleet's file has models at most."""


def plan_digest(cells: Iterable[Cell]) -> str:
    """The sha256 (hex) of the names of all cells: equal in all shards of one fleet."""
    names = sorted(cell.name for cell in cells)
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()


def cells_by_needs(cells: Iterable[Cell]) -> tuple[tuple[Needs, tuple[Cell, ...]], ...]:
    """The cells by what they ask of a machine, in the order in which that is first asked for."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(canonical_sha256(encode(cell.needs)), []).append(cell)
    return tuple((group[0].needs, tuple(group)) for group in groups.values())


def shards(cells: Sequence[Cell], count: int) -> tuple[tuple[Cell, ...], ...]:
    """The cells of each of `count` shards, by the fleet's file alone.

    Each shard has cells of equal needs, so that a machine can be chosen for it, unless there are
    fewer shards than needs; those of one kind of machine follow each other.
    """
    groups = [group for _, group in cells_by_needs(cells)]
    if len(groups) > count:
        return tuple(tuple(cells[index::count]) for index in range(count))
    return tuple(
        group[index::part]
        for group, part in zip(groups, _parts([len(group) for group in groups], count), strict=True)
        for index in range(part)
    )


def _parts(sizes: Sequence[int], count: int) -> list[int]:
    """How many of `count` shards each group gets: one, and the next to whose shards are longest."""
    parts = [1] * len(sizes)
    for _ in range(count - len(sizes)):
        # Of equal ones the first; so every shard knows all of them.
        parts[max(range(len(sizes)), key=lambda n: sizes[n] / parts[n])] += 1
    return parts
