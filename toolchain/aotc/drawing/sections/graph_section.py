"""The graph of each variant: drawing, search, boundaries, refusals, and a table of all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from aotc.contract.manifest.divided_graph import PartitionReport
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.nodes.node_errors import NodeErrors
from aotc.drawing.artifact_contents import Contents, DrawnVariant
from aotc.drawing.error_classes import error_key, errors_by_index
from aotc.drawing.figures import bytes_text, share_text, short_provider
from aotc.drawing.folding import fold
from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.graph_svg import Look, graph_svg
from aotc.drawing.markup import section, shown_name, table, tag
from aotc.drawing.module_names import modules_of
from aotc.drawing.sections.node_table import node_table
from aotc.reporting.plain_values import duration

NodeSeconds = Mapping[str, Mapping[str, float]]


def graph_section(
    contents: Contents, seconds: NodeSeconds, errors: Mapping[str, NodeErrors]
) -> Element:
    """All graphs, of which the reader chooses one; `seconds` are by variant and node name.

    `errors` are by variant.
    """
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
            tag("button", "+", type="button", data_do="in", aria_label="larger"),
            tag("button", "\u2212", type="button", data_do="out", aria_label="smaller"),
            tag("button", "fit", type="button", data_do="fit"),
            tag("button", "unfold all", type="button", data_do="open"),
            tag("button", "fold all", type="button", data_do="close"),
            class_="tools",
        ),
        tag("ul", id="found", aria_label="nodes found"),
        tag("p", id="said", role="status", class_="quiet"),
        tag(
            "noscript", tag("p", "Without scripts the groups stay folded; the table has all nodes.")
        ),
        *figures,
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
        assert drawn.refusal is not None
        said = f"Not drawn: {drawn.refusal.line()}"
        return tag("div", tag("p", said, class_="bad"), id=name, class_="variant")
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
        *_partitions(report),
        tag("h3", "Nodes"),
        _times(graph, times, variant),
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
        provider = short_provider(drawn.provider) or "unplaced"
        names.append(own.pop(0) if own else f"{provider} {index + 1}")
    return names


def _legend(graph: DrawnGraph, look: Look, variant: Variant) -> Element:
    counted = dict.fromkeys(look.providers, 0)
    for node in graph.nodes:
        if node.name in look.placed:
            counted[look.placed[node.name]] += 1
    return tag(
        "p",
        f"Placement {variant.placement.how}: ",
        *(
            tag(
                "span",
                tag("span", class_=f"swatch p{index % 6}", aria_hidden="true"),
                f"{short_provider(name)} {_counted(counted[name], 'node')}",
                class_="key",
            )
            for index, name in enumerate(look.providers)
        ),
        _counted(len(graph.parts), "partition"),
        class_="legend",
    )


def _partitions(report: PartitionReport | None) -> list[Element]:
    if report is None:
        return [tag("p", "One provider runs all nodes: there is no boundary.", class_="quiet")]
    crossing = [t for t in report.transfers if t.source and t.target]
    others = [t for t in report.transfers if not (t.source and t.target)]
    refusals = table(
        ("node", "operator", "refused by", "reason"),
        (
            (
                shown_name(refused.node),
                shown_name(refused.op, 60),
                short_provider(refused.provider),
                refused.reason,
            )
            for refused in report.refusals
        ),
    )
    return [
        tag("h3", "Partitions"),
        table(
            ("partition", "provider", "#nodes", "operators", "compiled"),
            (
                (
                    tag("b", shown_name(part.name)),
                    short_provider(part.provider),
                    str(part.nodes),
                    ", ".join(f"{shown_name(op, 60)} {count}" for op, count in part.ops.items()),
                    "into one node" if part.compiled else "no",
                )
                for part in report.partitions
            ),
        ),
        tag("h3", "Boundaries"),
        table(
            ("value", "from", "to", "#bytes at optimal sizes", "#at largest sizes"),
            (
                (
                    shown_name(transfer.value),
                    short_provider(transfer.source) or "caller",
                    short_provider(transfer.target) or "caller",
                    bytes_text(transfer.bytes),
                    bytes_text(transfer.bytes_max),
                )
                for transfer in (*crossing, *others)
            ),
            caption=f"{_counted(len(crossing), 'value')} from one provider to another in each "
            f"call, and {len(others)} between provider and caller.",
        ),
        tag("h3", "Refusals"),
        refusals
        if report.refusals
        else tag("p", "No provider refused a node that it was offered."),
    ]


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _times(graph: DrawnGraph, times: Mapping[str, float], variant: Variant) -> Element:
    if not times:
        return tag(
            "p",
            f"Times of single nodes of {variant.name} were not measured. The estimated share is of "
            "operations at the optimal sizes, by formula, and is no time.",
            class_="quiet",
        )
    total = sum(times.values())
    slowest = sorted(times, key=lambda name: -times[name])[:10]
    return table(
        ("node", "#time", "#share"),
        (
            # Where all are 0, as clocks that are too coarse have it, there are no shares.
            (shown_name(n), duration(times[n]), share_text(times[n] / total if total else None))
            for n in slowest
        ),
        caption=f"The slowest of {len(times)} measured nodes, {duration(total)} together.",
    )
