"""The layout of a layered graph: an importing box is above what it imports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

Edge = tuple[str, str]
Weights = Mapping[str, Mapping[str, int]]
# A room, or the point where a long edge passes a layer.
Item = str | tuple[Edge, int]


def reversed_edges(weights: Weights) -> set[Edge]:
    """A small set of imports whose removal leaves no cycle between rooms: they are drawn in red."""
    remaining = {name: dict(imports) for name, imports in weights.items()}
    against_order: set[Edge] = set()
    while remaining:
        free = [name for name in sorted(remaining) if not remaining[name].keys() & remaining.keys()]
        if not free:
            # Of the remaining rooms, the one with the fewest imports and the most importers.
            free = [min(remaining, key=lambda name: (_balance(name, remaining), name))]
            against_order |= {
                (free[0], other) for other in remaining[free[0]] if other in remaining
            }
        for name in free:
            del remaining[name]
    return against_order


def _balance(name: str, remaining: Weights) -> int:
    imports = sum(count for other, count in remaining[name].items() if other in remaining)
    return imports - sum(others.get(name, 0) for others in remaining.values())


def transitive_reduction(edges: Iterable[Edge]) -> list[Edge]:
    """The edges that no other path implies; there must be no cycle."""
    after: dict[str, set[str]] = {}
    for upper, lower in edges:
        after.setdefault(upper, set()).add(lower)

    def reach(name: str) -> set[str]:
        direct = after.get(name, set())
        return direct.union(*(reach(other) for other in direct))

    return sorted(
        (upper, lower)
        for upper, lowers in after.items()
        for lower in lowers
        if not any(lower in reach(other) for other in lowers - {lower})
    )


def layers(names: Iterable[str], edges: list[Edge], at_most: int) -> dict[str, int]:
    """The layer of each name, 0 the lowest: short edges, and rarely more than `at_most` a layer."""
    names = sorted(names)
    above = {name: [upper for upper, lower in edges if lower == name] for name in names}
    below = {name: [lower for upper, lower in edges if upper == name] for name in names}

    def height(name: str) -> int:
        return 1 + max((height(lower) for lower in below[name]), default=-1)

    def top(name: str) -> int:
        return min((top(upper) - 1 for upper in above[name]), default=highest)

    highest = max(map(height, names))
    layer = {name: height(name) for name in names}

    def cost() -> int:
        crowd = [list(layer.values()).count(number) for number in range(highest + 1)]
        length = sum(layer[upper] - layer[lower] for upper, lower in edges)
        return 2 * length + sum(6 * max(0, count - at_most) + count * count for count in crowd)

    def cost_at(name: str, number: int) -> int:
        kept, layer[name] = layer[name], number
        found, layer[name] = cost(), kept
        return found

    improved = True
    while improved:
        improved = False
        for name in names:
            first = max((layer[lower] + 1 for lower in below[name]), default=0)
            last = min((layer[upper] - 1 for upper in above[name]), default=highest)
            best = min(range(first, last + 1), key=lambda number: (cost_at(name, number), number))
            if cost_at(name, best) < cost():
                layer[name] = best
                improved = True
    return layer


def rows(layer: Mapping[str, int], edges: list[Edge]) -> list[list[Item]]:
    """The items of each layer from left to right, the lowest layer first, with few crossings."""
    found: list[list[Item]] = [[] for _ in range(max(layer.values()) + 1)]
    for name in sorted(layer):
        found[layer[name]].append(name)
    for edge in edges:
        for number in range(layer[edge[1]] + 1, layer[edge[0]]):
            found[number].append((edge, number))
    links = [link for edge in edges for link in pairwise(path(edge, layer))]
    best = found
    for sweep in range(24):
        order = range(1, len(found)) if sweep % 2 == 0 else range(len(found) - 2, -1, -1)
        for number in order:
            other = found[number + (-1 if sweep % 2 == 0 else 1)]
            place = {item: at for at, item in enumerate(other)}
            found[number] = _by_neighbours(found[number], links, place)
        for number in range(len(found)):
            _swap_neighbours(found, number, links)
        if crossings(found, links) < crossings(best, links) or sweep == 0:
            best = [list(row) for row in found]
    return best


def path(edge: Edge, layer: Mapping[str, int]) -> list[Item]:
    """The items that an edge passes, from its upper to its lower end."""
    upper, lower = edge
    return [upper, *((edge, at) for at in range(layer[upper] - 1, layer[lower], -1)), lower]


def _by_neighbours(
    row: list[Item], links: list[tuple[Item, Item]], place: dict[Item, int]
) -> list[Item]:
    def middle(item: Item) -> float:
        near = sorted(
            place[other]
            for pair in links
            if item in pair
            for other in pair
            if other != item and other in place
        )
        return sum(near) / len(near) if near else row.index(item)

    return sorted(row, key=middle)


def crossings(found: list[list[Item]], links: list[tuple[Item, Item]]) -> int:
    """The number of pairs of links that cross."""
    place = {item: (number, at) for number, row in enumerate(found) for at, item in enumerate(row)}
    ends = [(place[upper], place[lower]) for upper, lower in links]
    return sum(
        one[0][0] == two[0][0] and (one[0][1] - two[0][1]) * (one[1][1] - two[1][1]) < 0
        for index, one in enumerate(ends)
        for two in ends[:index]
    )


def _swap_neighbours(found: list[list[Item]], number: int, links: list[tuple[Item, Item]]) -> None:
    row = found[number]
    for at in range(len(row) - 1):
        before = crossings(found, links)
        row[at], row[at + 1] = row[at + 1], row[at]
        if crossings(found, links) >= before:
            row[at], row[at + 1] = row[at + 1], row[at]


def positions(
    found: list[list[Item]],
    links: list[tuple[Item, Item]],
    widths: Mapping[Item, int],
    gap: int,
    width: int,
) -> dict[Item, float]:
    """The middle of each item: near its linked items, in order, with a gap between them."""
    middle: dict[Item, float] = {}
    for row in found:
        total_width = sum(widths[item] for item in row)
        space = (width - total_width) / (len(row) + 1)
        at = space
        for item in row:
            middle[item] = at + widths[item] / 2
            at += widths[item] + space
    near: dict[Item, list[Item]] = {item: [] for row in found for item in row}
    for upper, lower in links:
        near[upper].append(lower)
        near[lower].append(upper)
    for _ in range(60):
        for row in found:
            wanted = [
                sum(middle[other] for other in near[item]) / len(near[item])
                if near[item]
                else middle[item]
                for item in row
            ]
            places = _spaced(wanted, [widths[item] for item in row], gap, width)
            middle.update(zip(row, places, strict=True))
    # Centre all items together.
    first = min(middle[item] - widths[item] / 2 for item in middle)
    last = max(middle[item] + widths[item] / 2 for item in middle)
    return {item: at + (width - first - last) / 2 for item, at in middle.items()}


def _spaced(wanted: list[float], widths: list[int], gap: int, width: int) -> list[float]:
    """The positions nearest to `wanted` (least squares) that keep the order and the gap."""
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + gap)
    blocks: list[list[float]] = []
    for place, offset in zip(wanted, offsets, strict=True):
        blocks.append([place - offset])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            tail = blocks.pop()
            blocks[-1].extend(tail)
    shifts = [_mean(block) for block in blocks for _ in block]
    first, last = widths[0] / 2, width - offsets[-1] - widths[-1] / 2
    return [
        min(max(shift, first), last) + offset for shift, offset in zip(shifts, offsets, strict=True)
    ]


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)
