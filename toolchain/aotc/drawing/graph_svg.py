"""A folded graph as inline SVG: all levels are in it, those within closed groups hidden.

The page's script opens groups: it knows where a level's things are from `data-x` (centre), `data-l`
(layer) and an edge's `data-t` (points between), and makes room.  What is drawn here is the state
with every group closed, which is also what a reader without scripts sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final
from xml.etree.ElementTree import Element

from aotc.contract.results.nodes.node_errors import NodeError
from aotc.drawing.error_classes import error_class, error_text
from aotc.drawing.figures import bytes_text, short_provider
from aotc.drawing.folding import Group
from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.layered_layout import Level, Point, lay_out
from aotc.drawing.markup import shown_name, tag
from aotc.records import field, record

# Pixels; page.js has the same.
BOX_WIDTH: Final = 168
BOX_HEIGHT: Final = 40
GAP_X: Final = 22
GAP_Y: Final = 30
_LABEL: Final = 25
_PORT: Final = 12
_MAX_PORT_EDGES: Final = 3


@record
class Look:
    """What a drawing shows of nodes and values besides the graph itself."""

    name: Annotated[str, "prefix of the ids of its elements"]
    providers: Annotated[Sequence[str], "in the order of their colours"]
    placed: Annotated[Mapping[str, str], "provider by node name"]
    boundary: Annotated[Mapping[str, int | None], "bytes by value that changes provider"] = field(
        default_factory=dict
    )
    peers: Annotated[Mapping[int, str], "id of the same node in another drawing"] = field(
        default_factory=dict
    )
    marks: Annotated[Mapping[int, str], "added, removed, moved or changed, by node"] = field(
        default_factory=dict
    )
    errors: Annotated[Mapping[int, NodeError], "by node, of what it makes"] = field(
        default_factory=dict
    )


def graph_svg(graph: DrawnGraph, root: Group, look: Look, *, title: str) -> Element:
    """The drawing of `graph` folded as `root`; raises what `lay_out` does."""
    drawing = _Drawing(graph, look)
    inside, width, height = drawing.level(root, 1)
    return tag(
        "svg",
        inside,
        class_="graph",
        role="tree",
        aria_label=title,
        id=f"{look.name}-graph",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=round(width),
        height=round(height),
    )


class _Drawing:
    """Draws one graph: values by producer and readers are looked up once."""

    def __init__(self, graph: DrawnGraph, look: Look) -> None:
        self.graph = graph
        self.look = look
        self.producers = {v: i for i, node in enumerate(graph.nodes) for v in node.outputs}
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(index)
        self.results = frozenset(graph.outputs)
        self.groups = 0

    def level(self, group: Group, depth: int) -> tuple[Element, float, float]:
        """The things of a group with their edges; also the width and height of all."""
        owner = {
            index: place
            for place, child in enumerate(group.children)
            for index in ((child,) if isinstance(child, int) else child.nodes)
        }
        count = len(group.children)
        carried = self._edges(group, owner, count)
        stubs = _stubs(carried, count)
        carried = {edge: values for edge, values in carried.items() if edge not in stubs}
        laid = lay_out(count + 2, carried)
        used = {end for edge in carried for end in edge}
        width = laid.width * (BOX_WIDTH + GAP_X) + BOX_WIDTH + 2 * GAP_X
        height = laid.layers * (BOX_HEIGHT + GAP_Y) + GAP_Y
        content = tag("g", class_="level", role="none", data_n=laid.layers)
        for route in laid.routes:
            values = carried[route.source, route.target]
            content.append(self._edge(laid, route.source, route.target, route.through, values))
        for place in range(count + 2):
            if place >= count and place not in used:
                continue
            point = laid.places[place]
            x, y = _x(point.x), _y(point.layer)
            if place >= count:
                content.append(self._port(place, place == count, depth, x, y, point.layer))
                continue
            child = group.children[place]
            drawn = (
                self._node(child, depth) if isinstance(child, int) else self._group(child, depth)
            )
            for way, edge in (("in", (count, place)), ("out", (place, count + 1))):
                if edge in stubs:
                    drawn.append(self._stub(way, stubs[edge]))
            drawn.set("transform", f"translate({x:.1f} {y:.1f})")
            drawn.set("data-x", f"{x:.1f}")
            drawn.set("data-l", str(point.layer))
            drawn.set("data-i", str(place))
            content.append(drawn)
        return content, width, height

    def _edges(
        self, group: Group, owner: Mapping[int, int], count: int
    ) -> dict[tuple[int, int], list[str]]:
        """Values by edge; thing `count` is what comes in, `count` + 1 what goes out."""
        found: dict[tuple[int, int], list[str]] = {}
        for index in group.nodes:
            node = self.graph.nodes[index]
            target = owner[index]
            for value in dict.fromkeys(node.inputs):
                source = owner.get(self.producers.get(value, -1), count)
                if source != target:
                    found.setdefault((source, target), []).append(value)
            for value in node.outputs:
                outside = any(reader not in owner for reader in self.readers.get(value, ()))
                if outside or value in self.results:
                    found.setdefault((target, count + 1), []).append(value)
        return {edge: list(dict.fromkeys(values)) for edge, values in found.items()}

    def _edge(
        self, laid: Level, source: int, target: int, through: Sequence[Point], values: list[str]
    ) -> Element:
        points = [laid.places[source], *through, laid.places[target]]
        crossing = [value for value in values if value in self.look.boundary]
        path = tag(
            "path",
            tag("title", self._values(values)),
            class_="edge boundary" if crossing else "edge",
            aria_hidden="true",
            d=_path(points),
            data_s=source,
            data_e=target,
            data_t=" ".join(f"{_x(p.x):.0f},{p.layer}" for p in through) or None,
        )
        if not crossing:
            return path
        moved = [self.look.boundary[value] for value in crossing]
        known = sum(size for size in moved if size is not None)
        label = bytes_text(known) if None not in moved else f"≥ {bytes_text(known)}"
        return tag("g", path, tag("text", label, class_="bytes", **_middle(points)), class_="e")

    def _values(self, values: Sequence[str]) -> str:
        """Names, shapes and bytes of the first few values."""
        said = ", ".join(
            f"{shown_name(value, 60)} {list(self.graph.shapes.get(value, ())) or ''} "
            f"{bytes_text(self.graph.sizes.get(value))}"
            for value in values[:6]
        )
        return said + (f", and {len(values) - 6} more" if len(values) > 6 else "")

    def _stub(self, way: str, values: list[str]) -> Element:
        """The end of an edge from or to outside, at its thing."""
        side, top = (1, -1) if way == "in" else (-1, 1)
        x, y = side * (18 - BOX_WIDTH / 2), top * BOX_HEIGHT / 2
        word = "from" if way == "in" else "to"
        return tag(
            "g",
            tag("title", f"{word} outside: {self._values(values)}"),
            tag("path", class_="edge", d=f"M{x:.0f} {y:.0f}v{top * 9}"),
            tag("circle", cx=x, cy=y + top * 11, r=3),
            class_=f"stub {way}",
        )

    def _port(
        self, place: int, inward: bool, depth: int, x: float, y: float, layer: int
    ) -> Element:
        if depth == 1:
            names = self.graph.inputs if inward else self.graph.outputs
            label = f"{len(names)} input" if inward else f"{len(names)} output"
            label += "" if len(names) == 1 else "s"
            said = ", ".join(shown_name(name, 60) for name in names[:20])
        else:
            label, said = ("in", "values from outside") if inward else ("out", "values that go out")
        return tag(
            "g",
            tag("title", said),
            tag("rect", x=-42, y=-_PORT, width=84, height=2 * _PORT, rx=_PORT),
            tag("text", label, text_anchor="middle", y=4),
            class_="port",
            transform=f"translate({x:.1f} {y:.1f})",
            data_x=x,
            data_l=layer,
            data_h=2 * _PORT,
            data_i=place,
        )

    def _node(self, index: int, depth: int) -> Element:
        node = self.graph.nodes[index]
        provider = self.look.placed.get(node.name, "")
        operator = node.op.rpartition("::")[2]
        mark = self.look.marks.get(index, "")
        said = f"{shown_name(operator, 60)}, node {shown_name(node.name)}"
        if provider:
            said += f", on {short_provider(provider)}"
        if mark:
            said += f", {mark}"
        error = self.look.errors.get(index)
        if error is not None:
            said += f", {error_text(error)}"
        return tag(
            "g",
            tag("title", said),
            _box(self._colour(provider)),
            tag("text", shown_name(operator, _LABEL), class_="op", text_anchor="middle", y=-3),
            tag("text", _short(node.name), class_="nm", text_anchor="middle", y=13),
            class_=" ".join(filter(None, ("node", mark, self._error_class((index,))))),
            role="treeitem",
            tabindex=-1,
            aria_level=depth,
            aria_label=said,
            id=f"{self.look.name}-n{index}",
            data_peer=self.look.peers.get(index),
        )

    def _group(self, group: Group, depth: int) -> Element:
        self.groups += 1
        name = f"{self.look.name}-g{self.groups}"
        inside, _, height = self.level(group, depth + 1)
        inside.set("class", "level inside")
        inside.set("role", "group")
        inside.set("visibility", "hidden")
        inside.set("display", "none")
        counted = f"{len(group.nodes)} nodes"
        providers = dict.fromkeys(
            self.look.placed.get(self.graph.nodes[index].name, "") for index in group.nodes
        )
        held = [name for name in self.look.providers if name in providers]
        colour = self._colour(held[0]) if len(held) == 1 else "p-mixed" if held else "p-none"
        marks = dict.fromkeys(self.look.marks[i] for i in group.nodes if i in self.look.marks)
        said = f"{group.kind} {shown_name(group.label)}, {counted}"
        if held:
            said += f", on {', '.join(short_provider(name) for name in held)}"
        if marks:
            said += f", with nodes {', '.join(marks)}"
        extra = f" · {', '.join(short_provider(p) for p in held)}" if group.provider else ""
        return tag(
            "g",
            tag("title", said),
            _box(colour, stacked=True),
            tag("text", "▸", class_="fold", x=12 - BOX_WIDTH / 2, y=5),
            tag("text", _short(group.label, 17), class_="op", text_anchor="middle", x=8, y=-3),
            tag("text", counted + extra, class_="nm", text_anchor="middle", x=8, y=13),
            inside,
            class_=" ".join(
                filter(
                    None,
                    (
                        *("group", group.kind, "touched" if marks else ""),
                        self._error_class(group.nodes),
                    ),
                )
            ),
            role="treeitem",
            tabindex=-1,
            aria_expanded="false",
            aria_level=depth,
            aria_label=said,
            id=name,
            data_h=height,
        )

    def _error_class(self, nodes: Iterable[int]) -> str:
        """The class of the largest error among nodes; empty if none of them was measured."""
        found = [error_class(self.look.errors[i]) for i in nodes if i in self.look.errors]
        return max(found, default="")

    def _colour(self, provider: str) -> str:
        if provider not in self.look.providers:
            return "p-none"
        return f"p{list(self.look.providers).index(provider) % 6}"


def _stubs(
    carried: Mapping[tuple[int, int], list[str]], count: int
) -> dict[tuple[int, int], list[str]]:
    """Edges from and to outside that are drawn as ends only, where they would cover the rest.

    So many are there if each layer of a network reads an input of its own, or makes an output.
    """
    found: dict[tuple[int, int], list[str]] = {}
    fed = {target for source, target in carried if source < count}
    read = {source for source, target in carried if target < count}
    inward = {e: v for e, v in carried.items() if e[0] == count and e[1] in fed}
    outward = {e: v for e, v in carried.items() if e[1] == count + 1 and e[0] in read}
    for edges in (inward, outward):
        if len(edges) > _MAX_PORT_EDGES:
            found |= edges
    return found


def _box(colour: str, *, stacked: bool = False) -> Element:
    half_width, half_height = BOX_WIDTH / 2, BOX_HEIGHT / 2
    return tag(
        "rect",
        class_=f"box {colour}{' stack' if stacked else ''}",
        x=-half_width,
        y=-half_height,
        width=BOX_WIDTH,
        height=BOX_HEIGHT,
        rx=5,
    )


def _short(name: str, length: int = _LABEL) -> str:
    """A name that fits into a box: its end tells more than its beginning."""
    shown = shown_name(name)
    return shown if len(shown) <= length else f"…{shown[1 - length :]}"


def _x(x: float) -> float:
    return x * (BOX_WIDTH + GAP_X) + BOX_WIDTH / 2 + GAP_X


def _y(layer: float) -> float:
    return layer * (BOX_HEIGHT + GAP_Y) + BOX_HEIGHT / 2 + GAP_Y


def _middle(points: Sequence[Point]) -> dict[str, float]:
    middle = len(points) // 2
    before, after = points[middle - 1], points[middle]
    return {
        "x": (_x(before.x) + _x(after.x)) / 2 + 4,
        "y": (_y(before.layer) + _y(after.layer)) / 2 + 4,
    }


def _path(points: Sequence[Point]) -> str:
    """A curve that leaves and enters things vertically, and goes straight through layers."""
    half = BOX_HEIGHT / 2
    x, y = _x(points[0].x), _y(points[0].layer) + half
    text = f"M{x:.0f} {y:.0f}"
    for number, point in enumerate(points[1:], 2):
        to_x, top = _x(point.x), _y(point.layer) - half
        bend = (y + top) / 2
        text += f"C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} {to_x:.0f} {top:.0f}"
        x, y = to_x, top
        if number < len(points):
            y = top + BOX_HEIGHT
            text += f"V{y:.0f}"
    return text
