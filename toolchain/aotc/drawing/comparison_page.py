"""The page of a comparison: both graphs side by side, with what differs marked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree.ElementTree import Element

from aotc.contract.results.diff_report import AreaDiff, ComparedArtifact, DiffReport, NodesDiff
from aotc.drawing.artifact_contents import Contents, read_contents
from aotc.drawing.figures import bytes_text
from aotc.drawing.markup import Content, section, shown_name, table, tag
from aotc.drawing.page_frame import page
from aotc.drawing.sections.difference_tables import difference_tables
from aotc.drawing.sections.side_by_side import Marks, side_by_side
from aotc.errors import AotcError
from aotc.reporting.change_words import both_values, only_pair, what_changed

_MAX_SHOWN = 200
_LONGEST_VALUE = 300


def comparison_page(a: Path, b: Path, report: DiffReport) -> str:
    """The page of `report`, which is of the artifacts `a` and `b`, in ASCII.

    Raises AOTC-G006 if one of them was replaced since, AOTC-I019 where a library of the extra
    `report` is missing, and what `artifact_contents.read_contents` does.
    """
    contents = _contents(a, report.a), _contents(b, report.b)
    said = (
        "Nothing on this page was checked against a signature: both artifacts say so of themselves."
    )
    return page(
        f"{report.a.path} and {report.b.path}",
        (tag("p", tag("b", "UNVERIFIED. "), said, class_="notice"),),
        (
            _overview(report),
            section("graphs", "Graphs", _legend(), *_graphs(*contents, report)),
            _changes(report),
            *difference_tables(report),
        ),
    )


def _contents(path: Path, compared: ComparedArtifact) -> Contents:
    found = read_contents(path)
    if found.report.artifact is None or found.report.artifact.artifact_id != compared.artifact_id:
        raise AotcError("AOTC-G006", "the artifact changed while it was read", where=str(path))
    return found


def _overview(report: DiffReport) -> Element:
    rows = [
        (
            name,
            shown_name(side.name),
            shown_name(side.path),
            tag("code", side.artifact_id),
            bytes_text(side.payload_bytes),
            side.built_at or "not stated",
        )
        for name, side in (("A", report.a), ("B", report.b))
    ]
    parts = [table(("", "name", "path", "id", "#payload", "built"), rows)]
    if report.same_id:
        parts.append(tag("p", "Both manifests are the same, byte for byte.", class_="good"))
    for failed in report.failed:
        found = f"{failed.what}: expected {failed.expected}, found {failed.found}"
        parts.append(tag("p", tag("b", failed.code), f" {found}", class_="bad"))
    for problem in report.problems:
        parts.append(tag("p", f"Could not be read: {problem.code} {problem.what}", class_="warn"))
    parts.append(
        table(
            ("area", "", "#B / A", "#changes"),
            (
                (
                    tag("a", area.area, href=f"#{_anchor(area)}") if area.changes else area.area,
                    _status(area),
                    "" if area.ratio is None else f"{area.ratio:.3g}",
                    str(len(area.changes)),
                )
                for area in report.areas
            ),
        )
    )
    return section("overview", "Overview", *parts)


def _graphs(a: Contents, b: Contents, report: DiffReport) -> list[Element]:
    pairs = {pair.label: pair for pair in report.variants}
    found: list[Element] = []
    drawn: set[tuple[int, int]] = set()
    for index, nodes in enumerate(report.nodes):
        pair = pairs.get(nodes.variant)
        if pair is None:
            continue
        found.append(tag("h3", shown_name(nodes.variant)))
        found.append(tag("p", _counted(nodes)))
        sides = _drawn(a, pair.a), _drawn(b, pair.b)
        if sides in drawn:
            found.append(tag("p", "Its graphs are those of a pair above.", class_="quiet"))
            continue
        drawn.add(sides)
        first, second = a.drawn[sides[0]], b.drawn[sides[1]]
        for side in (first, second):
            if side.refusal is not None:
                found.append(tag("p", f"Not drawn: {side.refusal.line()}", class_="bad"))
        if first.graph is None or second.graph is None:
            continue
        placed = _placed(a, pair.a), _placed(b, pair.b)
        found.append(side_by_side(index, (first.graph, second.graph), placed, _marks(nodes)))
    return found


def _drawn(contents: Contents, variant: str) -> int:
    return next(i for i, drawn in enumerate(contents.drawn) if variant in drawn.names)


def _placed(contents: Contents, variant: str) -> Mapping[str, str]:
    found = next(each for each in contents.manifest.variants if each.name == variant)
    return {node.name: node.provider for node in found.placement.nodes}


def _marks(nodes: NodesDiff) -> Marks:
    in_a: dict[str, str] = {change.a: "removed" for change in nodes.removed}
    in_b: dict[str, str] = {change.b: "added" for change in nodes.added}
    for kind, changes in (
        ("changed", nodes.renamed),
        ("changed", nodes.replaced),
        ("changed", nodes.altered),
        ("moved", nodes.moved),
    ):
        for change in changes:
            in_a[change.a] = kind
            in_b[change.b] = kind
    renamed = {change.a: change.b for change in (*nodes.renamed, *nodes.moved)}
    return Marks(a=in_a, b=in_b, renamed=renamed)


def _counted(nodes: NodesDiff) -> str:
    counts = ("moved", "added", "removed", "renamed", "replaced", "altered")
    found = [f"{len(getattr(nodes, name))} {name}" for name in counts if getattr(nodes, name)]
    said = f"{nodes.nodes_a} nodes in A, {nodes.nodes_b} in B, {nodes.matched} matched"
    how = "" if nodes.by_structure else " They are matched by name alone."
    return f"{said}: {', '.join(found) or 'all alike'}.{how}"


def _legend() -> Element:
    words = (
        "Nodes that differ are outlined: removed, which A alone has (red, dashed); added, which B "
        "alone has (green); moved to another provider, or with another name, operator or attribute "
        "(brown). "
        "Groups that hold such nodes are outlined in pink. A click on a group unfolds it; a click "
        "on a node shows the same one on the other side."
    )
    return tag("p", words, class_="quiet")


def _changes(report: DiffReport) -> Element:
    parts: list[Element] = []
    only = only_pair(report)
    for area in report.areas:
        if not area.changes:
            continue
        parts.append(tag("h3", area.area, id=_anchor(area)))
        if area.reason:
            parts.append(tag("p", area.reason, class_="quiet"))
        rows: list[tuple[Content, ...]] = [
            (
                shown_name(what_changed(area, change, only)),
                *(shown_name(value, _LONGEST_VALUE) for value in values),
                "" if change.ratio is None else f"{change.ratio:.3g}",
            )
            for change in area.changes[:_MAX_SHOWN]
            for values in (both_values(area, change, _LONGEST_VALUE),)
        ]
        parts.append(table(("", "A", "B", "#B / A"), rows))
        if len(area.changes) > _MAX_SHOWN:
            more = f"And {len(area.changes) - _MAX_SHOWN} more: 'aotc diff --json' has all."
            parts.append(tag("p", more))
    if not parts:
        skipped = any(area.status == "not-compared" for area in report.areas)
        said = "Nothing that was compared differs." if skipped else "Nothing differs."
        parts.append(tag("p", said))
    return section("changes", "Changes", *parts)


def _status(area: AreaDiff) -> Element:
    kind = {"same": "good", "changed": "warn"}.get(area.status, "quiet")
    return tag("span", f"{area.status}{f': {area.reason}' if area.reason else ''}", class_=kind)


def _anchor(area: AreaDiff) -> str:
    return f"area-{area.area}"
