"""A folded graph as inline SVG: its tree of modules, its layout, and what is drawn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Final, Literal
from xml.etree.ElementTree import Element

from aotc.base.records import field, record
from aotc.report.html.graph_data import DrawnGraph, DrawnNode, error_class, error_text, links_of
from aotc.report.html.page import bytes_text, shown_name, tag
from aotc.report.sheet import provider as short_provider
from aotc.spec.evidence import NodeError

# A folded graph as inline SVG: all levels are in it, those within closed groups hidden.
#
# The page's script opens groups: it knows where a level's things are from `data-x` (centre),
# `data-l` (layer) and an edge's `data-t` (points between), and makes room. What is drawn here is
# the state with every group closed, which is also what a reader without scripts sees.


# Pixels; page.js has the same.
BOX_WIDTH: Final = 168
BOX_HEIGHT: Final = 40
GAP_X: Final = 22
GAP_Y: Final = 30
_LABEL: Final = 25
_LONGEST_OPERATOR: Final = 19
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
    """Draws one graph."""

    def __init__(self, graph: DrawnGraph, look: Look) -> None:
        self.graph = graph
        self.look = look
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
        links = self.graph.links
        for index in group.nodes:
            target = owner[index]
            for value in links.reads[index]:
                source = owner.get(links.producers.get(value, -1), count)
                if source != target:
                    found.setdefault((source, target), []).append(value)
            for value in links.makes[index]:
                outside = any(reader not in owner for reader in links.readers.get(value, ()))
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
            _operator(shown_name(operator, _LABEL)),
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


def _operator(shown: str) -> Element:
    """An operator in its box; what is longer than the box is drawn together."""
    found = tag("text", shown, class_="op", text_anchor="middle", y=-3)
    if len(shown) > _LONGEST_OPERATOR:
        found.set("textLength", str(BOX_WIDTH - 10))
        found.set("lengthAdjust", "spacingAndGlyphs")
    return found


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


# The tree of a drawn graph: partitions, modules, runs of nodes, nodes.
#
# A group that holds one thing alone is that thing, so that each click shows something new.


# More things than this side by side are folded into runs.
MAX_CHILDREN: Final = 40
_RUN: Final = 16
# Of more nodes beside modules, those in a row are folded into a run.
MAX_LOOSE: Final = 8
_MAX_RETURNS: Final = 2


@record
class Group:
    """Nodes that are folded into one box; children are groups, and nodes by their index."""

    label: str
    kind: Literal["graph", "partition", "module", "run"]
    children: tuple[Group | int, ...]
    nodes: Annotated[tuple[int, ...], "all nodes within, in order of execution"]
    provider: Annotated[str, "of a partition"] = ""


def fold(graph: DrawnGraph, part_names: Sequence[str] = ()) -> Group:
    """The tree of `graph`; `part_names` are those of its partitions, in their order."""
    folder = _Folder(graph)
    everything = tuple(range(len(graph.nodes)))
    if len(graph.parts) < 2:
        children = folder.fold(everything, 0)
        return Group(label="graph", kind="graph", children=_split(children), nodes=everything)
    parts: list[Group | int] = []
    for index, part in enumerate(graph.parts):
        label = part_names[index] if index < len(part_names) else f"partition {index + 1}"
        parts.append(
            Group(
                label=label,
                kind="partition",
                children=_split(folder.fold(part.nodes, 0)),
                nodes=part.nodes,
                provider=part.provider,
            )
        )
    return Group(label="graph", kind="graph", children=_split(parts), nodes=everything)


class _Folder:
    """Folds nodes of one graph by their modules."""

    def __init__(self, graph: DrawnGraph) -> None:
        self.modules = modules_of(graph.nodes)
        self.before = graph.links.before

    def fold(self, nodes: Sequence[int], depth: int) -> list[Group | int]:
        """`nodes`, folded by the part of their module's name at `depth`, in execution order."""
        names = {
            index: self.modules[index][depth] for index in nodes if len(self.modules[index]) > depth
        }
        passes = self._passes(nodes, names)
        members: dict[tuple[str, int], list[int]] = {}
        places: dict[tuple[str, int], int] = {}
        found: list[Group | int] = []
        for index in nodes:
            if index not in names:
                found.append(index)
                continue
            key = names[index], passes[index]
            if key not in members:
                members[key] = []
                places[key] = len(found)
                found.append(index)
            members[key].append(index)
        for key, place in places.items():
            found[place] = self._module(*key, members[key], depth)
        return found

    def _module(self, name: str, number: int, inside: list[int], depth: int) -> Group | int:
        if len(inside) == 1:
            return inside[0]
        label = f"{name} ({number + 1})" if number else name
        children = self.fold(inside, depth + 1)
        if len(children) == 1 and isinstance(only := children[0], Group):
            if only.kind == "module":
                label = f"{label}.{only.label}"
            return Group(label=label, kind="module", children=only.children, nodes=only.nodes)
        return Group(label=label, kind="module", children=_split(children), nodes=tuple(inside))

    def _passes(self, nodes: Sequence[int], names: Mapping[int, str]) -> dict[int, int]:
        """How often the way to each node has left its module and come back; 0 if never.

        A module that is drawn as one box although it is left and entered again has edges upwards:
        so are tied weights, which the first and the last node of a network read.  Modules that are
        entered often stay whole: their names tell more than the order.
        """
        inside = set(nodes)
        seen: dict[int, dict[str, int]] = {}
        found: dict[int, int] = {}
        most: dict[str, int] = {}
        for index in nodes:
            name = names.get(index)
            above: dict[str, int] = {}
            number = 0
            for source in self.before[index]:
                if source not in inside or source not in seen:
                    continue
                for other, count in seen[source].items():
                    above[other] = max(above.get(other, 0), count)
                if name is not None and name in seen[source]:
                    returned = names.get(source) != name
                    number = max(number, seen[source][name] + returned)
            if name is not None:
                above[name] = max(above.get(name, 0), number)
                found[index] = number
                most[name] = max(most.get(name, 0), number)
            seen[index] = above
        return {
            index: number if most[names[index]] <= _MAX_RETURNS else 0
            for index, number in found.items()
        }


def _split(children: Sequence[Group | int]) -> tuple[Group | int, ...]:
    """The children, with runs folded: of nodes beside modules, and where there are too many."""
    found = list(children)
    loose = sum(isinstance(child, int) for child in found)
    if MAX_LOOSE < loose < len(found):
        found = []
        for alone, run in groupby(children, key=lambda child: isinstance(child, int)):
            members = list(run)
            found += [_run_of(members)] if alone and len(members) > 2 else members
    while len(found) > MAX_CHILDREN:
        size = max(_RUN, -(-len(found) // MAX_CHILDREN))
        runs = [found[at : at + size] for at in range(0, len(found), size)]
        found = [run[0] if len(run) == 1 else _run_of(run) for run in runs]
    return tuple(found)


def _run_of(children: Sequence[Group | int]) -> Group:
    nodes = sorted(
        index
        for child in children
        for index in ((child,) if isinstance(child, int) else child.nodes)
    )
    label = f"nodes {nodes[0] + 1} to {nodes[-1] + 1}"
    if any(isinstance(child, Group) and child.kind == "partition" for child in children):
        label = f"{len(children)} partitions"
    return Group(label=label, kind="run", children=tuple(children), nodes=tuple(nodes))


# The layout of one level of a drawn graph: layers from top to bottom, by fast-sugiyama.
#
# See docs/adr/0040-pages.md for why this library.


# Distance of two neighbours' centres in the library's units; also that of two layers.
_SPACING: Final = 100
# The width of a point that a long edge passes through, in boxes.
_DUMMY: Final = 0.2
# Above so many edges the library's last step, which swaps neighbours, takes most of the time.
_CAREFUL: Final = 400


@record
class Point:
    """A place in a level: in units of one box with its gap, and the number of the layer."""

    x: float
    layer: int


@record
class Route:
    """An edge, with the places that it passes through between its ends."""

    source: int
    target: int
    through: tuple[Point, ...] = ()


@record
class Level:
    """Where the things of a level are, and how edges go between them; x begins at 0."""

    places: tuple[Point, ...]
    routes: tuple[Route, ...]
    width: Annotated[float, "in units of one box with its gap"]
    layers: int


def lay_out(count: int, edges: Iterable[tuple[int, int]]) -> Level:
    """The layout of things 0 to `count` - 1.

    Edges may form circles: folding ties what is no circle among nodes.
    """
    from fast_sugiyama import from_edges

    given = sorted({(a, b) for a, b in edges if a != b})
    both = set(given)
    # Of two edges between the same two the library takes one; the other is drawn along it.
    forward = [(a, b) for a, b in given if a < b or (b, a) not in both]
    # The library numbers what it is given in the order of a set: for integers from 0 without
    # gaps that is their own order, so that a layout is the same each time.
    numbers = {thing: i for i, thing in enumerate(sorted({t for edge in forward for t in edge}))}
    things = tuple(numbers)
    places: dict[int, Point] = {}
    through: dict[tuple[int, int], tuple[Point, ...]] = {}
    right, depth = 0.0, 1
    laid = (
        from_edges(
            [(numbers[a], numbers[b]) for a, b in forward],
            dummy_vertices=True,
            vertex_spacing=_SPACING,
            dummy_size=_DUMMY,
            transpose=len(given) < _CAREFUL,
        )
        if forward
        else ()
    )
    for positions, _, _, drawn in laid:
        found = [(int(number), float(x), float(y)) for number, (x, y) in positions]
        # The library's y grows upwards.
        heights = sorted({y for _, _, y in found}, reverse=True)
        layers = {y: i for i, y in enumerate(heights)}
        left = min(x for _, x, _ in found)
        points = {
            number: Point(x=right + (x - left) / _SPACING, layer=layers[y])
            for number, x, y in found
        }
        places |= {things[n]: point for n, point in points.items() if n < len(things)}
        for a, b, passed in _chains([(int(a), int(b)) for a, b in drawn or ()], len(things)):
            through[things[a], things[b]] = tuple(points[number] for number in passed)
        right = max(point.x for point in points.values()) + 1
        depth = max(depth, len(heights))
    for thing in range(count):
        if thing not in places:
            places[thing] = Point(x=right, layer=0)
            right += 1
    # The library sometimes lays two things of a layer nearer than they are wide.
    for layer in range(depth):
        least = 0.0
        for thing in sorted(
            (t for t in places if places[t].layer == layer), key=lambda t: (places[t].x, t)
        ):
            places[thing] = Point(x=max(places[thing].x, least), layer=layer)
            least = places[thing].x + 1
        right = max(right, least)
    routes = tuple(
        Route(
            source=a,
            target=b,
            through=through.get((a, b), ()) or tuple(reversed(through.get((b, a), ()))),
        )
        for a, b in given
    )
    return Level(
        places=tuple(places[thing] for thing in range(count)),
        routes=routes,
        width=max(right - 1, 0.0),
        layers=depth,
    )


def _chains(
    edges: Sequence[tuple[int, int]], count: int
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Edges from and to things, each with the added points that it goes through.

    Numbers from `count` on are added points; each has one edge in and one out.
    """
    following = {a: b for a, b in edges if a >= count}
    for a, b in edges:
        if a >= count:
            continue
        passed: list[int] = []
        while b >= count and len(passed) <= len(edges):
            passed.append(b)
            b = following[b]
        yield a, b, tuple(passed)


# The module of the source network that each node belongs to, as far as names tell.
#
# Exporters name nodes by module (`/encoder/layer.0/attention/MatMul`), or name the weights so
# (`encoder.layer.0.attention.query.bias`). Fused nodes lose their names and folded weights theirs,
# so what names do not tell is taken from neighbours.


Module = tuple[str, ...]
# Names are read as modules only where this share of the nodes is named so.
_SHARE: Final = 0.2
# What ONNX Runtime appends to the names of nodes that it makes.
_SUFFIX: Final = re.compile(r"/\w*(?:Fusion|Transformer|Optimizer)\w*/?$|_nchwc$")
_MAX_DEPTH: Final = 12


def modules_of(nodes: Sequence[DrawnNode]) -> list[Module]:
    """The module of each node, outermost first; empty where nothing tells it."""
    found: list[Module | None] = [_of_path(node.name) for node in nodes]
    if sum(module is not None for module in found) < _SHARE * len(nodes):
        found = [None] * len(nodes)
    anchors = _of_weights(nodes)
    found = [module if module is not None else anchors[i] for i, module in enumerate(found)]
    before = links_of(nodes).before
    consumers: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(before):
        for source in sources:
            consumers[source].append(index)
    # A product and the sum with its bias are of one module; the bias alone has a name left.
    for index in reversed(range(len(nodes))):
        after = consumers[index]
        if found[index] is None and nodes[index].weights and len(after) == 1:
            found[index] = found[after[0]]
    for index, sources in enumerate(before):
        if found[index] is None:
            modules_before = (found[source] for source in reversed(sources))
            found[index] = _common([module for module in modules_before if module is not None])
    for index in reversed(range(len(nodes))):
        if found[index] is None:
            found[index] = _prefix([m for i in consumers[index] if (m := found[i]) is not None])
    modules = [module or () for module in found]
    # What all modules begin with tells nothing.
    shared = len(_prefix([module for module in modules if module]) or ())
    return [module[shared:] for module in modules]


def _of_path(name: str) -> Module | None:
    """`/encoder/layer.0/MatMul` is of `encoder`, `layer.0`."""
    path = _SUFFIX.sub("", name)
    parts = [part for part in path.split("/") if part]
    if "/" not in path.strip("/"):
        return () if path.startswith("/") else None
    return tuple(parts[:-1])[:_MAX_DEPTH]


def _of_weights(nodes: Sequence[DrawnNode]) -> list[Module | None]:
    """The module that the weights of a node name; a weight of several nodes tells nothing."""
    readers = Counter(weight for node in nodes for weight in dict.fromkeys(node.weights))
    found: list[Module | None] = []
    for node in nodes:
        own = [
            _of_weight(weight)
            for weight in node.weights
            if readers[weight] == 1 and "." in weight and "::" not in weight
        ]
        found.append(_prefix(own))
    return found


def _of_weight(name: str) -> Module:
    """`encoder.layer.0.dense.bias` is of `encoder`, `layer.0`, `dense`."""
    module: list[str] = []
    for part in name.split(".")[:-1]:
        if part.isdigit() and module:
            module[-1] += f".{part}"
        elif part:
            module.append(part)
    return tuple(module)[:_MAX_DEPTH]


def _common(modules: Sequence[Module]) -> Module | None:
    """The module of a node from those before it, the latest first.

    What several parts of one module come to is of that module; a sum that takes an earlier
    module's result, as residual connections do, stays with the latest.
    """
    if not modules:
        return None
    latest = modules[0]
    shared = _prefix(modules) or ()
    return shared if len(shared) >= max(len(latest) - 1, 1) else latest


def _prefix(modules: Sequence[Module]) -> Module | None:
    if not modules:
        return None
    length = 0
    for parts in zip(*modules, strict=False):
        if len(set(parts)) > 1:
            break
        length += 1
    return modules[0][:length]
