"""Two graphs side by side, whose nodes know each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from xml.etree.ElementTree import Element

from aotc.drawing.figures import short_provider
from aotc.drawing.folding import fold
from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.graph_svg import Look, graph_svg
from aotc.drawing.markup import tag
from aotc.records import record


@record
class Marks:
    """What differs between two graphs, by node name."""

    a: Mapping[str, str]
    b: Mapping[str, str]
    renamed: Annotated[Mapping[str, str], "name in B by name in A, where they differ"]


def side_by_side(
    number: int,
    graphs: tuple[DrawnGraph, DrawnGraph],
    placed: tuple[Mapping[str, str], Mapping[str, str]],
    marks: Marks,
) -> Element:
    """Both drawings; colours of providers are the same in both.  `number` makes ids of them."""
    providers = tuple(dict.fromkeys((*placed[0].values(), *placed[1].values())))
    places_b = {node.name: index for index, node in enumerate(graphs[1].nodes)}
    peers: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for index, node in enumerate(graphs[0].nodes):
        other = places_b.get(marks.renamed.get(node.name, node.name))
        if other is not None and marks.a.get(node.name) != "removed":
            peers[0][index] = other
            peers[1][other] = index
    sides = []
    for side, stated in enumerate((marks.a, marks.b)):
        graph, letter = graphs[side], "AB"[side]
        look = Look(
            name=f"{'ab'[side]}{number}",
            providers=providers,
            placed=placed[side],
            marks={
                i: stated[node.name] for i, node in enumerate(graph.nodes) if node.name in stated
            },
            peers={i: f"{'ba'[side]}{number}-n{other}" for i, other in peers[side].items()},
        )
        drawing = graph_svg(graph, fold(graph), look, title=f"graph of {letter}")
        sides.append(
            tag(
                "div",
                tag("h4", letter),
                tag(
                    "div",
                    tag("button", "+", type="button", data_do="in", aria_label="larger"),
                    tag("button", "\u2212", type="button", data_do="out", aria_label="smaller"),
                    tag("button", "fit", type="button", data_do="fit"),
                    tag("button", "unfold all", type="button", data_do="open"),
                    tag("button", "fold all", type="button", data_do="close"),
                    class_="tools",
                ),
                tag("div", drawing, class_="canvas", role="region", aria_label=f"{letter}, drawn"),
                class_="side",
            )
        )
    return tag(
        "div",
        tag(
            "p",
            *(
                tag(
                    "span",
                    tag("span", class_=f"swatch p{index % 6}", aria_hidden="true"),
                    short_provider(name),
                    class_="key",
                )
                for index, name in enumerate(providers)
            ),
            class_="legend",
        ),
        tag("div", *sides, class_="sides"),
    )
