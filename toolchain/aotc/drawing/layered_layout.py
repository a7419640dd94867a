"""The layout of one level of a drawn graph: layers from top to bottom, by fast-sugiyama.

See docs/adr/0040-pages.md for why this library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from aotc.errors import AotcError, install_extra
from aotc.records import record

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
    """The layout of things 0 to `count` - 1; raises AOTC-I019 where the library is missing.

    Edges may form circles: folding ties what is no circle among nodes.
    """
    try:
        from fast_sugiyama import from_edges
    except ImportError as error:
        raise AotcError(
            "AOTC-I019",
            "fast-sugiyama cannot be imported",
            found=str(error),
            fix=install_extra("report"),
        ) from None
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
