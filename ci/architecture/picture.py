"""The picture of the rooms, as SVG for light and dark backgrounds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from itertools import pairwise
from xml.sax.saxutils import escape

from layout import Edge, Item, layers, path, positions, reversed_edges, rows, transitive_reduction
from rooms import Room, foundation

WIDTH, MARGIN = 1120, 24
BOX, PASSAGE, GAP = 208, 12, 24
BETWEEN = 48
HEADER, LINE, PART, PAD = 30, 16, 22, 10
WRAP = 28

STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.paper { fill: #ffffff; }
.room { fill: #eef4fb; stroke: #5b83b0; }
.base { fill: #f4f2ec; stroke: #a39a82; }
.part { fill: #ffffff; stroke: #5b83b0; stroke-opacity: .5; }
.name { fill: #16202b; font-size: 15px; font-weight: 600; }
.text { fill: #3c4a59; font-size: 12px; }
.wrong { fill: #c0261c; font-size: 12px; font-weight: 600; }
.edge { fill: none; stroke: #7d8b99; stroke-width: 1.4; }
.cycle { fill: none; stroke: #d3352a; stroke-width: 2; stroke-dasharray: 6 4; }
.tip { fill: #7d8b99; }
.redtip { fill: #d3352a; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0f141a; }
  .room { fill: #172536; stroke: #5f8fc4; }
  .base { fill: #24221b; stroke: #8d856d; }
  .part { fill: #0f141a; stroke: #5f8fc4; }
  .name { fill: #eef3f8; }
  .text { fill: #b4c0cc; }
  .wrong { fill: #ff8a80; }
  .edge { stroke: #8796a5; }
  .tip { fill: #8796a5; }
  .cycle { stroke: #ff6b5f; }
  .redtip { fill: #ff6b5f; }
}
"""


def draw(rooms: tuple[Room, ...], title: str) -> str:
    """The complete picture; equal bytes for equal rooms."""
    base = foundation(rooms)
    upper = {room.name: room for room in rooms if room.name not in base}
    weights = {
        name: {other: count for other, count in room.imports.items() if other in upper}
        for name, room in upper.items()
    }
    wrong = reversed_edges(weights)
    edges = transitive_reduction(
        (name, other)
        for name, imports in weights.items()
        for other in imports
        if (name, other) not in wrong
    )
    layer = layers(upper, edges, at_most=4)
    found = rows(layer, edges)
    links = [link for edge in edges for link in pairwise(path(edge, layer))]
    widths = {item: BOX if isinstance(item, str) else PASSAGE for row in found for item in row}
    inner = max(
        WIDTH - 2 * MARGIN,
        *(sum(widths[item] + GAP for item in row) - GAP for row in found),
    )
    middle = positions(found, links, widths, GAP, inner)

    spans: dict[int, tuple[int, int]] = {}
    boxes: list[str] = []
    captions = ["An arrow: imports. Imports that follow from other arrows have none of their own."]
    if wrong or any(room.cycles for room in rooms):
        captions.append("Red: cycles of imports.")
    boxes += [
        f'<text class="text" x="{MARGIN}" y="{MARGIN + 12 + LINE * at}">{escape(caption)}</text>'
        for at, caption in enumerate(captions)
    ]
    y = MARGIN + 12 + LINE * len(captions) + 8
    for number in reversed(range(len(found))):
        names = [item for item in found[number] if isinstance(item, str)]
        height = max((_height(upper[name], WRAP) for name in names), default=0)
        spans[number] = (y, y + height)
        for name in names:
            place = (MARGIN + round(middle[name]) - BOX // 2, y, BOX, height)
            boxes += _box(upper[name], "room", place, WRAP)
        y += height + BETWEEN
    ports = _ports(edges, middle, layer)
    lines = [_edge(edge, ports, middle, layer, spans) for edge in edges]
    lines += [_wrong_edge(edge, middle, layer, spans, found) for edge in sorted(wrong)]
    bars, y = _bars([room for room in rooms if room.name in base], y, inner)
    return _document(title, rooms, (inner + 2 * MARGIN, y + MARGIN - 10), [*boxes, *lines, *bars])


def _flow(parts: Iterable[Room], width: int) -> list[list[tuple[Room, int]]]:
    """Parts in lines, each part with its width."""
    found: list[list[tuple[Room, int]]] = [[]]
    left = width
    for part in parts:
        size = round(7.6 * len(part.name)) + 16
        if size > left and found[-1]:
            found.append([])
            left = width
        found[-1].append((part, size))
        left -= size + 6
    return found if found[0] else []


def _wrapped(text: str, wrap: int) -> list[str]:
    return textwrap.wrap(text.replace("`", ""), wrap, break_on_hyphens=False)


def _height(room: Room, wrap: int, width: int = BOX) -> int:
    text = len(_wrapped(room.purpose, wrap)) + bool(room.cycles)
    return HEADER + LINE * text + (PART + 4) * len(_flow(room.parts, width - 2 * PAD)) + PAD


def _box(room: Room, kind: str, place: tuple[int, int, int, int], wrap: int) -> list[str]:
    x, y, width, height = place
    elements = [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>',
        f'<text class="name" x="{x + PAD}" y="{y + 21}">{escape(room.name)}</text>',
    ]
    if room.files > 1:
        elements.append(
            f'<text class="text" x="{x + width - PAD}" y="{y + 21}" text-anchor="end">'
            f"{room.files} files</text>"
        )
    at = y + HEADER + 9
    for line in _wrapped(room.purpose, wrap):
        elements.append(f'<text class="text" x="{x + PAD}" y="{at}">{escape(line)}</text>')
        at += LINE
    if room.cycles:
        label = "1 cycle" if len(room.cycles) == 1 else f"{len(room.cycles)} cycles"
        elements.append(f'<text class="wrong" x="{x + PAD}" y="{at}">{label} between files</text>')
        at += LINE
    at -= 8
    for line_of_parts in _flow(room.parts, width - 2 * PAD):
        left = x + PAD
        for part, size in line_of_parts:
            elements += [
                f'<rect class="part" x="{left}" y="{at}" width="{size}" height="{PART}" rx="4"/>',
                f'<text class="text" x="{left + size // 2}" y="{at + 15}" text-anchor="middle">'
                f"{escape(part.name)}</text>",
            ]
            left += size + 6
        at += PART + 4
    return elements


Ports = dict[tuple[Edge, bool], int]


def _ports(edges: list[Edge], middle: dict[Item, float], layer: dict[str, int]) -> Ports:
    """Where each edge leaves its upper box and enters its lower one, ordered by direction."""
    ends: dict[tuple[str, bool], list[tuple[float, Edge]]] = {}
    for edge in edges:
        way = path(edge, layer)
        ends.setdefault((edge[0], True), []).append((middle[way[1]], edge))
        ends.setdefault((edge[1], False), []).append((middle[way[-2]], edge))
    return {
        (edge, leaves): round(
            MARGIN + middle[name] + (at - (len(there) - 1) / 2) * min(28, 140 / len(there))
        )
        for (name, leaves), there in ends.items()
        for at, (_, edge) in enumerate(sorted(there))
    }


def _edge(
    edge: Edge,
    ports: Ports,
    middle: dict[Item, float],
    layer: dict[str, int],
    spans: dict[int, tuple[int, int]],
) -> str:
    """One line from box to box; it passes the layers between them vertically."""
    x, y = ports[edge, True], spans[layer[edge[0]]][1]
    commands = [f"M {x} {y}"]
    for item in path(edge, layer)[1:]:
        ends = isinstance(item, str)
        number = layer[item] if isinstance(item, str) else item[1]
        to_x = ports[edge, False] if ends else MARGIN + round(middle[item])
        # The tip of the arrow touches the box.
        to_y = spans[number][0] - (7 if ends else 0)
        half = (to_y - y) // 2
        commands.append(f"C {x} {y + half}, {to_x} {to_y - half}, {to_x} {to_y}")
        if not ends:
            commands.append(f"L {to_x} {spans[number][1]}")
        x, y = to_x, spans[number][1]
    return f'<path class="edge" marker-end="url(#tip)" d="{" ".join(commands)}"/>'


def _wrong_edge(
    edge: Edge,
    middle: dict[Item, float],
    layer: dict[str, int],
    spans: dict[int, tuple[int, int]],
    found: list[list[Item]],
) -> str:
    """An import against the order, drawn upwards to the left of everything in between."""
    between = [row[0] for row in found[layer[edge[0]] : layer[edge[1]] + 1] if row]
    (x, y), (to_x, to_y) = (
        (MARGIN + round(middle[name]) - BOX // 2, sum(spans[layer[name]]) // 2) for name in edge
    )
    lefts = [middle[item] - (BOX / 2 if isinstance(item, str) else 0) for item in between]
    lane = max(12, MARGIN + round(min(lefts)) - 18)
    return (
        f'<path class="cycle" marker-end="url(#redtip)" d="M {x} {y} C {lane} {y}, {lane} {y}, '
        f'{lane} {y - 40} L {lane} {to_y + 40} C {lane} {to_y}, {lane} {to_y}, {to_x - 7} {to_y}"/>'
    )


def _bars(base: list[Room], y: int, inner: int) -> tuple[list[str], int]:
    """Rooms that nearly all others import, as bars across the bottom, without lines."""
    if not base:
        return [], y
    names = {room.name for room in base}
    edges = [(room.name, other) for room in base for other in room.imports if other in names]
    wrong = reversed_edges({room.name: room.imports for room in base})
    layer = layers(names, [edge for edge in edges if edge not in wrong], at_most=2)
    elements = [f'<text class="text" x="{MARGIN}" y="{y}">Every room may import these:</text>']
    y += 12
    for number in sorted(set(layer.values()), reverse=True):
        row = [room for room in base if layer[room.name] == number]
        width = (inner - GAP * (len(row) - 1)) // len(row)
        wrap = width * 2 // 15
        height = max(_height(room, wrap, width) for room in row)
        for at, room in enumerate(row):
            elements += _box(room, "base", (MARGIN + at * (width + GAP), y, width, height), wrap)
        y += height + 10
    return elements, y


def _document(
    title: str, rooms: tuple[Room, ...], size: tuple[int, int], elements: list[str]
) -> str:
    width, height = size
    description = "; ".join(
        f"{room.name} imports {', '.join(room.imports) or 'no other room'}" for room in rooms
    )
    tips = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="0" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{name}" d="M 0 0 L 8 4 L 0 8 z"/>'
        "</marker>"
        for name in ("tip", "redtip")
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(description)}.</desc>',
            f"<style>{STYLE}</style>",
            f"<defs>{tips}</defs>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *elements,
            "</svg>",
            "",
        ]
    )
