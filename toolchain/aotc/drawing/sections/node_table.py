"""All nodes of a graph as a table: what the drawing shows by place and colour, in words."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from aotc.contract.results.nodes.node_errors import NodeError
from aotc.drawing.error_classes import error_text
from aotc.drawing.figures import bytes_text, share_text, short_provider
from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.markup import shown_name, tag
from aotc.drawing.module_names import Module
from aotc.reporting.plain_values import duration

HEAD = (
    *("node", "operator", "module", "provider", "makes", "#bytes", "#estimated share"),
    *("#time", "#share of time"),
)


def node_table(
    name: str,
    graph: DrawnGraph,
    modules: list[Module],
    placed: Mapping[str, str],
    seconds: Mapping[str, float],
    errors: Mapping[int, NodeError] | None = None,
) -> Element:
    """One row a node; `seconds` are measured times by node name, empty if none was measured.

    `errors` are by index of the node, empty if none was measured.
    """
    operations = sum(node.flops for node in graph.nodes) or 1
    total = sum(seconds.values()) or 1.0
    columns = (HEAD if seconds else HEAD[:-2]) + (("error",) if errors else ())
    body = tag("tbody")
    for index, node in enumerate(graph.nodes):
        made = [value for value in node.outputs if value in graph.sizes]
        shapes = ", ".join(str(list(graph.shapes.get(value, ()))) for value in made)
        size = sum(graph.sizes[value] for value in made) if made else None
        cells = [
            (shown_name(node.name), ""),
            (shown_name(node.op, 60), ""),
            (shown_name(".".join(modules[index]), 120), ""),
            (short_provider(placed.get(node.name, "")), ""),
            (shapes, ""),
            (bytes_text(size), "n"),
            (share_text(node.flops / operations), "n"),
        ]
        if seconds:
            taken = seconds.get(node.name)
            cells += [
                ("" if taken is None else duration(taken), "n"),
                ("" if taken is None else share_text(taken / total), "n"),
            ]
        if errors:
            found = errors.get(index)
            cells.append(("" if found is None else error_text(found), ""))
        row = tag("tr", id=f"{name}-r{index}")
        for text, kind in cells:
            row.append(tag("td", text, class_=kind or None))
        body.append(row)
    head = (tag("th", title.removeprefix("#"), scope="col") for title in columns)
    return tag(
        "div",
        tag("table", tag("thead", tag("tr", *head)), body, class_="nodes"),
        class_="scroll tall",
        tabindex=0,
        role="region",
        aria_label="all nodes",
    )
