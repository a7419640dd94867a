"""Claims become partitions: each node in exactly one, each partition convex, no cycles.

Every node goes to the first provider that claims it.  A node's level is the largest number of
changes of provider on any path to it; nodes of one provider and one level make one partition.
Levels never fall along an edge and rise with every change of provider, so a path that leaves a
partition never comes back to it, and partitions in order of (level, provider) run without a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.backends.base import Rates
from aotc.partitioning.compute import Sizes
from aotc.partitioning.graph import PartitionGraph


@dataclass(frozen=True, slots=True)
class Part:
    """One partition of the main graph: indices of its nodes, in order of execution."""

    provider: str
    level: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions in order of execution, and provider by node name, those of bodies included."""

    parts: tuple[Part, ...]
    providers: Mapping[str, str]
    given_away: Mapping[str, str]
    """Why a node is not on the first provider that claimed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What makes a partition too small; `rates` by provider, and sizes at the optimal shape."""

    min_nodes: int = 1
    # Providers whose partitions cannot stand inside of a body of control flow.
    outside: frozenset[str] = frozenset()
    rates: Mapping[str, Rates] | None = None
    sizes: Sizes | None = None


def assign(
    graph: PartitionGraph, claims: Sequence[tuple[str, frozenset[str]]], rules: Rules
) -> tuple[Assignment, tuple[str, ...]]:
    """Partitions for `claims` (provider and nodes, first choice first), and unclaimed nodes.

    What is below `rules` is given to the next provider that claims it, the smallest first, until
    nothing is; the last provider keeps all.  Bodies of control flow follow their own claims.
    """
    order = {name: index for index, (name, _) in enumerate(claims)}
    wanted = [_claimants(node.name, claims) for node in graph.nodes]
    missing = [n.name for n, names in zip(graph.nodes, wanted, strict=True) if not names]
    bodies = {each.name: _claimants(each.name, claims) for each in graph.body_nodes}
    own = {n.name: set(names) for n, names in zip(graph.nodes, wanted, strict=True)}
    for each in graph.body_nodes:
        # Such a provider takes a body with its owner or not at all.
        bodies[each.name] = [
            name
            for name in bodies[each.name]
            if name not in rules.outside or name in own[each.owner]
        ]
    missing += [name for name, names in bodies.items() if not names]
    if missing:
        return Assignment((), {}, {}), tuple(missing)
    chosen = [0] * len(graph.nodes)
    reasons: dict[str, str] = {}
    before = _predecessors(graph)
    while True:
        placed = [names[index] for names, index in zip(wanted, chosen, strict=True)]
        parts = _parts(before, placed, order)
        small = _too_small(graph, parts, placed, wanted, chosen, rules)
        if not small:
            break
        for part, why in small:
            for index in part.nodes:
                chosen[index] += 1
                reasons[graph.nodes[index].name] = why
    providers = {node.name: name for node, name in zip(graph.nodes, placed, strict=True)}
    owners = dict(providers)
    for each in graph.body_nodes:
        names = bodies[each.name]
        # Nobody's body runs on a provider that comes before its owner's.
        owner = owners[each.owner]
        later = [
            name
            for name in names
            if order[name] >= order[owner] and (name not in rules.outside or name == owner)
        ]
        providers[each.name] = (later or names)[0]
    return Assignment(tuple(parts), providers, reasons), ()


def _claimants(name: str, claims: Sequence[tuple[str, frozenset[str]]]) -> list[str]:
    return [provider for provider, nodes in claims if name in nodes]


def _predecessors(graph: PartitionGraph) -> list[list[int]]:
    producers = graph.producers()
    return [
        sorted({producers[value] for value in node.inputs if value in producers})
        for node in graph.nodes
    ]


def _parts(
    before: Sequence[Sequence[int]], placed: Sequence[str], order: Mapping[str, int]
) -> list[Part]:
    levels: list[int] = []
    groups: dict[tuple[int, str], list[int]] = {}
    for index, provider in enumerate(placed):
        level = 0
        for source in before[index]:
            level = max(level, levels[source] + (placed[source] != provider))
        levels.append(level)
        groups.setdefault((level, provider), []).append(index)
    keys = sorted(groups, key=lambda key: (key[0], order[key[1]]))
    return [Part(provider, level, tuple(groups[level, provider])) for level, provider in keys]


def _too_small(
    graph: PartitionGraph,
    parts: Sequence[Part],
    placed: Sequence[str],
    wanted: Sequence[Sequence[str]],
    chosen: Sequence[int],
    rules: Rules,
) -> list[tuple[Part, str]]:
    """Partitions to give away, with the reason; those below the minimum before any other."""
    movable = [
        part
        for part in parts
        if all(chosen[index] + 1 < len(wanted[index]) for index in part.nodes)
    ]
    small = [part for part in movable if len(part.nodes) < rules.min_nodes]
    if small:
        least = min(len(part.nodes) for part in small)
        return [
            (part, f"its partition has {len(part.nodes)} nodes, fewer than {rules.min_nodes}")
            for part in small
            if len(part.nodes) == least
        ]
    if rules.rates is None or rules.sizes is None:
        return []
    worst: list[tuple[float, Part]] = []
    readers = _readers(graph)
    producers = graph.producers()
    for part in movable:
        following = {wanted[index][chosen[index] + 1] for index in part.nodes}
        gain = _gain(graph, part, following, rules.rates, rules.sizes)
        border = _border(graph, part, placed, producers, readers, rules)
        if border > gain:
            worst.append((gain - border, part))
    # One at a time where there are few: giving one away may join its neighbours.
    worst.sort(key=lambda each: each[0])
    taken = worst[: max(1, len(worst) // 8)]
    return [(part, "its borders cost more than it gains") for _, part in taken]


def _readers(graph: PartitionGraph) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.inputs:
            readers.setdefault(value, []).append(index)
    return readers


def _gain(
    graph: PartitionGraph,
    part: Part,
    following: set[str],
    rates: Mapping[str, Rates],
    sizes: Sizes,
) -> float:
    """Seconds that the provider saves over the next one, by the slower of operations and bytes."""

    def seconds(provider: str) -> float:
        rate = rates[provider]
        total = 0.0
        for index in part.nodes:
            cost = sizes.nodes.get(graph.nodes[index].name)
            if cost is not None:
                total += max(cost.flops / rate.flops, cost.bytes / rate.bytes)
        return total

    return max(seconds(name) for name in following) - seconds(part.provider)


def _border(
    graph: PartitionGraph,
    part: Part,
    placed: Sequence[str],
    producers: Mapping[str, int],
    readers: Mapping[str, Sequence[int]],
    rules: Rules,
) -> float:
    """Seconds that the tensors of its borders take, those with callers left out."""
    if rules.rates is None or rules.sizes is None:
        return 0.0
    own = set(part.nodes)
    rate = rules.rates[part.provider]
    crossing: set[str] = set()
    for index in part.nodes:
        node = graph.nodes[index]
        for value in node.inputs:
            source = producers.get(value)
            if source is not None and source not in own and placed[source] != part.provider:
                crossing.add(value)
        for value in node.outputs:
            if any(placed[reader] != part.provider for reader in readers.get(value, ())):
                crossing.add(value)
    moved = sum(rules.sizes.values.get(value, 0) for value in crossing)
    return len(crossing) * rate.transfer_seconds + moved / rate.transfer_bytes
