"""Claims become partitions: each node in exactly one, each partition convex, no cycles.

Every node goes to the first provider that claims it.  A node's level is the largest number of
changes of provider on any path to it; nodes of one provider and one level make one partition.
Levels never fall along an edge and rise with every change of provider, so a path that leaves a
partition never comes back to it, and partitions in order of (level, provider) run without a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.backends.base import Rates
from aotc.partitioning.compute import Sizes
from aotc.partitioning.graph import PartitionGraph
from aotc.records import record


@record(kw_only=False)
class Part:
    """One partition of the main graph: indices of its nodes, in order of execution."""

    provider: str
    level: int
    nodes: tuple[int, ...]


@record(kw_only=False)
class Assignment:
    """Partitions in order of execution, and provider by node name, those of bodies included."""

    parts: tuple[Part, ...]
    providers: Mapping[str, str]
    given_away: Mapping[str, str]
    """Why a node is not on the first provider that claimed it."""


@record
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
    places = _Places(bodies, order, rules.outside)
    weighing = _Weighing(graph, wanted, rules, places)
    while True:
        placed = [names[index] for names, index in zip(wanted, chosen, strict=True)]
        parts = _parts(before, placed, order)
        small = weighing.too_small(parts, placed, chosen)
        if not small:
            break
        for part, why in small:
            for index in part.nodes:
                chosen[index] += 1
                reasons[graph.nodes[index].name] = why
    providers = {node.name: name for node, name in zip(graph.nodes, placed, strict=True)}
    for each in graph.body_nodes:
        providers[each.name] = places.of(each.name, providers[each.owner])
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


@record(kw_only=False)
class _Places:
    """Where nodes of bodies run: `claimants` by node, `order` of providers, those not in bodies."""

    claimants: Mapping[str, Sequence[str]]
    order: Mapping[str, int]
    outside: frozenset[str]

    def of(self, node: str, owner: str) -> str:
        """The provider of a body's node whose owner is on the provider `owner`.

        Nobody's body runs on a provider that comes before its owner's.
        """
        names = self.claimants[node]
        later = [
            name
            for name in names
            if self.order[name] >= self.order[owner] and (name not in self.outside or name == owner)
        ]
        return (later or names)[0]


class _Weighing:
    """Which partitions are not worth their borders; what does not change is computed once."""

    def __init__(
        self,
        graph: PartitionGraph,
        wanted: Sequence[Sequence[str]],
        rules: Rules,
        places: _Places,
    ) -> None:
        self._wanted = wanted
        self._rules = rules
        self._weighs = rules.rates is not None and rules.sizes is not None
        if not self._weighs:
            return
        sizes = rules.sizes.values if rules.sizes is not None else {}
        producers = graph.producers()
        readers: dict[str, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                readers.setdefault(value, []).append(index)
        # Of each node: values that it reads with their makers, and makes with their readers.
        self._read = [
            [(producers[v], v, sizes.get(v, 0)) for v in node.inputs if v in producers]
            for node in graph.nodes
        ]
        self._made = [
            [(readers[v], v, sizes.get(v, 0)) for v in node.outputs if v in readers]
            for node in graph.nodes
        ]
        # Of partitions, by their nodes: seconds gained less those of the borders.
        self._worth: dict[tuple[int, ...], float] = {}
        self._last = [0] * len(graph.nodes)
        rates = rules.rates or {}
        self._seconds = {
            name: [_seconds(node.name, rate, rules.sizes) for node in graph.nodes]
            for name, rate in rates.items()
        }
        # Bodies cost where they run when their owner runs there: they may not go along.
        for index, node in enumerate(graph.nodes):
            for name in wanted[index] if node.bodies else ():
                self._seconds[name][index] += sum(
                    _seconds(each, rates[places.of(each, name)], rules.sizes)
                    for each in node.bodies
                )

    def too_small(
        self, parts: Sequence[Part], placed: Sequence[str], chosen: Sequence[int]
    ) -> list[tuple[Part, str]]:
        """Partitions to give away, with the reason; those below the minimum before any other."""
        wanted, least = self._wanted, self._rules.min_nodes
        movable = [
            part
            for part in parts
            if all(chosen[index] + 1 < len(wanted[index]) for index in part.nodes)
        ]
        small = [part for part in movable if len(part.nodes) < least]
        if small:
            fewest = min(len(part.nodes) for part in small)
            return [
                (part, f"its partition has {fewest} nodes, fewer than {least}")
                for part in small
                if len(part.nodes) == fewest
            ]
        if not self._weighs:
            return []
        self._forget(chosen)
        worst: list[tuple[float, Part]] = []
        for part in movable:
            if part.nodes not in self._worth:
                border = self._border(part, placed, chosen)
                self._worth[part.nodes] = self._gain(part, chosen) - border if border > 0 else 0.0
            if (worth := self._worth[part.nodes]) < 0:
                worst.append((worth, part))
        # Few at a time: giving one away may join its neighbours.
        worst.sort(key=lambda each: each[0])
        taken = worst[: max(1, len(worst) // 4)]
        return [(part, "its borders cost more than it gains") for _, part in taken]

    def _forget(self, chosen: Sequence[int]) -> None:
        """Forget what was computed of partitions in which, or beside which, a node was moved."""
        moved = [
            i for i, (one, other) in enumerate(zip(chosen, self._last, strict=True)) if one != other
        ]
        self._last = list(chosen)
        touched = set(moved)
        for index in moved:
            touched.update(maker for maker, _, _ in self._read[index])
            touched.update(reader for readers, _, _ in self._made[index] for reader in readers)
        self._worth = {k: v for k, v in self._worth.items() if touched.isdisjoint(k)}

    def _gain(self, part: Part, chosen: Sequence[int]) -> float:
        """Seconds that the provider saves over the next ones that would take the nodes."""
        following = {self._wanted[index][chosen[index] + 1] for index in part.nodes}
        costs = [sum(self._seconds[name][i] for i in part.nodes) for name in following]
        return max(costs) - sum(self._seconds[part.provider][i] for i in part.nodes)

    def _border(self, part: Part, placed: Sequence[str], chosen: Sequence[int]) -> float:
        """Seconds that the tensors take which cross with this provider, and not with the next.

        What callers give and take is left out, and what crosses whoever of the two has the nodes.
        """
        assert self._rules.rates is not None
        rate = self._rules.rates[part.provider]
        after = {index: self._wanted[index][chosen[index] + 1] for index in part.nodes}

        def then(index: int) -> str:
            return after.get(index, placed[index])

        now: dict[str, int] = {}
        later: dict[str, int] = {}
        for index in part.nodes:
            for maker, value, size in self._read[index]:
                if placed[maker] != part.provider:
                    now[value] = size
                if then(maker) != after[index]:
                    later[value] = size
            for readers, value, size in self._made[index]:
                if any(placed[reader] != part.provider for reader in readers):
                    now[value] = size
                if any(then(reader) != after[index] for reader in readers):
                    later[value] = size
        count = len(now) - len(later)
        return (
            count * rate.transfer_seconds
            + (sum(now.values()) - sum(later.values())) / rate.transfer_bytes
        )


def _seconds(name: str, rate: Rates, sizes: Sizes | None) -> float:
    """Of one run of a node, by the slower of operations and bytes."""
    cost = sizes.nodes.get(name) if sizes is not None else None
    return 0.0 if cost is None else max(cost.flops / rate.flops, cost.bytes / rate.bytes)
