"""The page of a comparison: both graphs side by side, with what differs marked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from aotc.base.errors import AotcError
from aotc.report.html.artifact_contents import Contents, read_contents
from aotc.report.html.figures import diff_figures
from aotc.report.html.graph_data import DrawnGraph
from aotc.report.html.graph_drawing import Look, fold, graph_svg
from aotc.report.html.page import (
    drawing_buttons,
    elements,
    flowing,
    page,
    section,
    shown_name,
    swatch,
    tag,
    unverified,
)
from aotc.report.sheet import Facts, Note, Sheet, Table, provider, refusals_table
from aotc.report.sheets.differences import (
    answers_facts,
    changes_table,
    matched_text,
    measured_table,
    nodes_text,
    outcome,
    side_text,
    unchanged_facts,
    weights_sheet,
)
from aotc.spec.diff_report import ComparedArtifact, DiffReport, NodeChange, NodesDiff

# Characters of a value.
_LONGEST_VALUE: Final = 300


def comparison_page(a: Path, b: Path, report: DiffReport) -> str:
    """The page of `report`, which is of the artifacts `a` and `b`, in ASCII.

    Raises AOTC-G006 if one of them was replaced since, and what `artifact_contents.read_contents`
    does.
    """
    contents = _contents(a, report.a), _contents(b, report.b)
    sides = [
        (name, (side.path, side_text(side), side.artifact_id))
        for name, side in (("A", report.a), ("B", report.b))
    ]
    overview: Sheet = [
        refusals_table("failed", report.failed),
        Note(f"{outcome(report)}.", "verdict"),
        Facts(sides),
        unchanged_facts(report),
        answers_facts(report.answers),
        refusals_table("problems", report.problems),
    ]
    differences: tuple[tuple[str, Sheet], ...] = (
        ("changes", [changes_table(report, _LONGEST_VALUE)]),
        ("nodes", [_nodes(nodes) for nodes in report.nodes]),
        ("weights", weights_sheet(report.weights)),
        ("measured", [measured_table(report.measured)]),
    )
    found = [(anchor, list(elements(sheet))) for anchor, sheet in differences]
    return page(
        f"{report.a.path} and {report.b.path}",
        (unverified("both artifacts say so of themselves: 'aotc verify' checks them."),),
        (
            section("overview", "Overview", diff_figures(report), *elements(overview)),
            section("graphs", "Graphs", _legend(), *_graphs(*contents, report)),
            *(section(anchor, anchor.capitalize(), *parts) for anchor, parts in found if parts),
        ),
    )


def _contents(path: Path, compared: ComparedArtifact) -> Contents:
    found = read_contents(path)
    if found.report.artifact is None or found.report.artifact.artifact_id != compared.artifact_id:
        raise AotcError("AOTC-G006", "the artifact changed while it was read", where=str(path))
    return found


def _graphs(a: Contents, b: Contents, report: DiffReport) -> list[Element]:
    pairs = {pair.label: pair for pair in report.variants}
    found: list[Element] = []
    drawn: set[tuple[int, int]] = set()
    for index, nodes in enumerate(report.nodes):
        pair = pairs.get(nodes.variant)
        if pair is None:
            continue
        found.append(tag("h3", *flowing(shown_name(nodes.variant))))
        found += elements([Facts([(matched_text(nodes), nodes_text(nodes) or "all alike")])])
        sides = _drawn(a, pair.a), _drawn(b, pair.b)
        if sides in drawn:
            found.append(tag("p", "Its graphs are those of a pair above.", class_="quiet"))
            continue
        drawn.add(sides)
        first, second = a.drawn[sides[0]], b.drawn[sides[1]]
        for side in (first, second):
            if side.graph is None:
                found.append(tag("p", side.why_not, class_="bad"))
        if first.graph is None or second.graph is None:
            continue
        placed = _placed(a, pair.a), _placed(b, pair.b)
        found.append(side_by_side(index, (first.graph, second.graph), placed, nodes))
    return found


def _drawn(contents: Contents, variant: str) -> int:
    return next(i for i, drawn in enumerate(contents.drawn) if variant in drawn.names)


def _placed(contents: Contents, variant: str) -> Mapping[str, str]:
    found = next(each for each in contents.manifest.variants if each.name == variant)
    return {node.name: node.provider for node in found.placement.nodes}


def _legend() -> Element:
    words = (
        "Nodes that differ are outlined: removed, which A alone has (red, dashed); added, which B "
        "alone has (green); moved to another provider, or with another name, operator or attribute "
        "(brown). "
        "Groups that hold such nodes are outlined in pink. A click on a group unfolds it; a click "
        "on a node shows the same one on the other side."
    )
    return tag("p", words, class_="quiet")


def _nodes(nodes: NodesDiff) -> Table:
    """Each node that differs."""
    rows = [
        (
            kind,
            _operator(change),
            change.a,
            provider(change.provider_a),
            change.b,
            provider(change.provider_b),
        )
        for kind in ("replaced", "altered", "renamed", "moved", "added", "removed")
        for change in getattr(nodes, kind)
    ]
    return Table(nodes.variant, ("operator", "A", "on", "B", "on"), rows)


def _operator(change: NodeChange) -> str:
    """The operator without its domain, both where they differ; attributes that differ."""
    known = (op.rpartition("::")[2] for op in (change.op_a, change.op_b) if op)
    altered = f" ({', '.join(change.attributes)})" if change.attributes else ""
    return " \u2192 ".join(dict.fromkeys(known)) + altered


# Two graphs side by side, whose nodes know each other.


def side_by_side(
    number: int,
    graphs: tuple[DrawnGraph, DrawnGraph],
    placed: tuple[Mapping[str, str], Mapping[str, str]],
    nodes: NodesDiff,
) -> Element:
    """Both drawings; colours of providers are the same in both.  `number` makes ids of them."""
    providers = tuple(dict.fromkeys((*placed[0].values(), *placed[1].values())))
    # What differs, by the name in A and in B.
    marks: tuple[dict[str, str], dict[str, str]] = ({}, {})
    marks[0].update({change.a: "removed" for change in nodes.removed})
    marks[1].update({change.b: "added" for change in nodes.added})
    changed = (*nodes.renamed, *nodes.replaced, *nodes.altered)
    for kind, changes in (("changed", changed), ("moved", nodes.moved)):
        marks[0].update({change.a: kind for change in changes})
        marks[1].update({change.b: kind for change in changes})
    renamed = {change.a: change.b for change in (*nodes.renamed, *nodes.moved)}
    places_b = {node.name: index for index, node in enumerate(graphs[1].nodes)}
    peers: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for index, node in enumerate(graphs[0].nodes):
        other = places_b.get(renamed.get(node.name, node.name))
        if other is not None and marks[0].get(node.name) != "removed":
            peers[0][index] = other
            peers[1][other] = index
    sides = []
    for side, stated in enumerate(marks):
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
                tag("div", *drawing_buttons(), class_="tools"),
                tag("div", drawing, class_="canvas", role="region", aria_label=f"{letter}, drawn"),
                class_="side",
            )
        )
    return tag(
        "div",
        tag(
            "p",
            *(swatch(f"p{i % 6}", provider(name)) for i, name in enumerate(providers)),
            class_="legend",
        ),
        tag("div", *sides, class_="sides"),
    )
