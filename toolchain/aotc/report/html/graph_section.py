"""The graph of each variant: drawing, search, boundaries, refusals, and a table of all nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from aotc.base.text import duration
from aotc.report.html.artifact_contents import Contents, DrawnVariant
from aotc.report.html.graph_data import DrawnGraph, error_key, error_text, errors_by_index
from aotc.report.html.graph_drawing import Look, Module, fold, graph_svg, modules_of
from aotc.report.html.page import (
    bytes_text,
    drawing_buttons,
    elements,
    section,
    share_text,
    shown_name,
    swatch,
    tag,
)
from aotc.report.sheet import Note, Table, count, provider
from aotc.report.sheets.variants import placement_sheet
from aotc.spec.evidence import NodeError, NodeErrors
from aotc.spec.variant import PartitionReport, Variant

NodeSeconds = Mapping[str, Mapping[str, float]]


def graph_section(
    contents: Contents, seconds: NodeSeconds, errors: Mapping[str, NodeErrors]
) -> Element:
    """All graphs, to choose one of; `seconds` are by variant and node name, `errors` by variant."""
    variants = {variant.name: variant for variant in contents.manifest.variants}
    figures = [
        _figure(
            f"v{index}",
            drawn,
            variants[drawn.names[0]],
            seconds,
            next((errors[own] for own in drawn.names if own in errors), None),
        )
        for index, drawn in enumerate(contents.drawn)
    ]
    for figure in figures[1:]:
        figure.set("hidden", "")
    chosen = tag(
        "select",
        *(
            tag("option", ", ".join(drawn.names), value=f"v{index}")
            for index, drawn in enumerate(contents.drawn)
        ),
        id="variant",
    )
    return section(
        "graph",
        "Graph",
        tag(
            "div",
            tag("label", "variant ", chosen),
            tag(
                "label",
                "find a node ",
                tag(
                    "input",
                    type="search",
                    id="find",
                    autocomplete="off",
                    placeholder="name, operator or module",
                ),
            ),
            *drawing_buttons(),
            class_="tools",
        ),
        tag("ul", id="found", aria_label="nodes found"),
        tag("p", id="said", role="status", class_="quiet"),
        tag(
            "noscript", tag("p", "Without scripts the groups stay folded; the table has all nodes.")
        ),
        *figures,
        *elements(placement_sheet(contents.summary.variants)),
    )


def _figure(
    name: str,
    drawn: DrawnVariant,
    variant: Variant,
    seconds: NodeSeconds,
    errors: NodeErrors | None,
) -> Element:
    graph = drawn.graph
    if graph is None:
        return tag("div", tag("p", drawn.why_not, class_="bad"), id=name, class_="variant")
    placed = {node.name: node.provider for node in variant.placement.nodes}
    report = variant.partitioning
    providers = tuple(dict.fromkeys((*variant.providers, *placed.values())))
    boundary = {
        transfer.value: transfer.bytes
        for transfer in (report.transfers if report is not None else ())
        if transfer.source and transfer.target
    }
    wrong = errors_by_index(graph, errors) if errors is not None else {}
    look = Look(name=name, providers=providers, placed=placed, boundary=boundary, errors=wrong)
    tree = fold(graph, _part_names(graph, report))
    title = f"graph of {', '.join(drawn.names)}"
    times = next((seconds[own] for own in drawn.names if own in seconds), {})
    return tag(
        "div",
        _legend(graph, look, variant),
        *((error_key(wrong),) if wrong else ()),
        tag(
            "div",
            tag(
                "div",
                graph_svg(graph, tree, look, title=title),
                class_="canvas",
                role="region",
                aria_label=f"{title}, drawn",
            ),
            tag(
                "aside",
                tag("p", "Choose a node to see what is known of it.", class_="quiet"),
                class_="detail",
                aria_live="polite",
            ),
            class_="split",
        ),
        tag("h3", "Nodes"),
        *_times(graph, times, variant),
        tag(
            "details",
            tag("summary", f"All {len(graph.nodes)} nodes in order of execution"),
            node_table(name, graph, modules_of(graph.nodes), placed, times, wrong),
        ),
        id=name,
        class_="variant",
    )


def _part_names(graph: DrawnGraph, report: PartitionReport | None) -> list[str]:
    """The manifest's name of each part, where it has as many of that provider and size."""
    stated: dict[tuple[str, int], list[str]] = {}
    for part in report.partitions if report is not None else ():
        if not part.subgraph:
            stated.setdefault((part.provider, part.nodes), []).append(part.name)
    names = []
    for index, drawn in enumerate(graph.parts):
        own = stated.get((drawn.provider, len(drawn.nodes)))
        on = provider(drawn.provider) or "unplaced"
        names.append(own.pop(0) if own else f"{on} {index + 1}")
    return names


def _legend(graph: DrawnGraph, look: Look, variant: Variant) -> Element:
    counted = dict.fromkeys(look.providers, 0)
    for node in graph.nodes:
        if node.name in look.placed:
            counted[look.placed[node.name]] += 1
    return tag(
        "p",
        f"Placement {variant.placement.origin}: ",
        *(
            swatch(f"p{index % 6}", f"{provider(name)} {count(counted[name], 'node')}")
            for index, name in enumerate(look.providers)
        ),
        count(len(graph.parts), "partition"),
        class_="legend",
    )


def _times(graph: DrawnGraph, times: Mapping[str, float], variant: Variant) -> Iterator[Element]:
    said = (
        f"Times of single nodes of {variant.name} were not measured. The estimated share is of "
        "operations at the optimal sizes, by formula, and is no time."
    )
    total = sum(times.values())
    slowest = sorted(times, key=lambda name: -times[name])[:10]
    # Where all are 0, as clocks that are too coarse have it, there are no shares.
    rows = [(n, duration(times[n]), share_text(times[n] / total) if total else "") for n in slowest]
    note = f"The slowest of {len(times)} measured nodes, {duration(total)} together."
    slow = Table("", ("#time", "#share"), rows, note=note)
    yield from elements([slow if times else Note(said, "quiet")])


# All nodes of a graph as a table: what the drawing shows by place and colour, in words.


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
    rows = []
    for index, node in enumerate(graph.nodes):
        made = [value for value in node.outputs if value in graph.sizes]
        taken = seconds.get(node.name)
        found = (errors or {}).get(index)
        rows.append(
            (
                node.name,
                shown_name(node.op, 60),
                shown_name(".".join(modules[index]), 120) or "-",
                provider(placed.get(node.name, "")),
                ", ".join(str(list(graph.shapes.get(value, ()))) for value in made),
                bytes_text(sum(graph.sizes[value] for value in made) if made else None),
                share_text(node.flops / operations),
                "" if taken is None else duration(taken),
                "" if taken is None else share_text(taken / total),
                "" if found is None else error_text(found),
            )
        )
    heads = ["operator", "module", "provider", "makes", "#bytes", "#estimated share"]
    heads += ["#time", "#share of time", "error"]
    (frame,) = elements([Table("", heads, rows, name="node")])
    frame[0].set("class", "nodes")
    for index, row in enumerate(frame.iterfind(".//tbody/tr")):
        row.set("id", f"{name}-r{index}")
    return frame
