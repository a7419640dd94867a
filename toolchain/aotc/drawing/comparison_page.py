"""The page of a comparison: both graphs side by side, with what differs marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from xml.etree.ElementTree import Element

from aotc.contract.codec.parsing import Json
from aotc.drawing.artifact_contents import Contents, read_contents
from aotc.drawing.figures import bytes_text
from aotc.drawing.markup import Content, section, shown_name, table, tag
from aotc.drawing.page_frame import page
from aotc.drawing.sections.side_by_side import Marks, side_by_side
from aotc.files.failures import cannot_write
from aotc.files.writing import write_atomically

_MAX_SHOWN = 200


class DiffReport(Protocol):
    """What a page shows of a comparison; `contract.results.diff_report.DiffReport` has it."""

    a: Any
    b: Any
    same_id: bool
    areas: Sequence[Any]
    variants: Sequence[Any]
    nodes: Sequence[Any]
    failed: Sequence[Any]
    problems: Sequence[Any]


def write_comparison(a: Path, b: Path, report: DiffReport, file: Path) -> None:
    """Write the page of `report`, which is of the artifacts `a` and `b`.

    Raises what `artifact_contents.read_contents` does, AOTC-I019 where a library of the extra
    `report` is missing, and I018 (full disk) and I026 for the file.
    """
    text = comparison_page(read_contents(a), read_contents(b), report)
    try:
        write_atomically(file, text.encode("ascii"))
    except OSError as error:
        raise cannot_write(error, "cannot write the page", str(file)) from None


def comparison_page(a: Contents, b: Contents, report: DiffReport) -> str:
    """The page as text; raises what `layered_layout.lay_out` does."""
    said = (
        "Nothing on this page was checked against a signature: both artifacts say so of themselves."
    )
    return page(
        f"{report.a.name} and {report.b.name}",
        (tag("p", tag("b", "UNVERIFIED. "), said, class_="notice"),),
        (
            _overview(report),
            section("graphs", "Graphs", _legend(), *_graphs(a, b, report)),
            _changes(report),
        ),
    )


def _overview(report: DiffReport) -> Element:
    rows = [
        (
            name,
            shown_name(str(side.path)),
            tag("code", str(side.artifact_id)),
            bytes_text(side.payload_bytes),
            side.built_at or "not stated",
        )
        for name, side in (("A", report.a), ("B", report.b))
    ]
    parts = [table(("", "path", "id", "#payload", "built"), rows)]
    if report.same_id:
        parts.append(tag("p", "Both manifests are the same, byte for byte.", class_="good"))
    for failed in report.failed:
        found = f"{failed.what}: expected {failed.expected}, found {failed.found}"
        parts.append(tag("p", tag("b", str(failed.code)), f" {found}", class_="bad"))
    for problem in report.problems:
        parts.append(tag("p", f"Could not be read: {problem.code} {problem.what}", class_="warn"))
    parts.append(
        table(
            ("area", "", "#b / a", "#changes"),
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


def _marks(nodes: Any) -> Marks:
    in_a: dict[str, str] = {change.a: "removed" for change in nodes.removed}
    in_b: dict[str, str] = {change.b: "added" for change in nodes.added}
    for kind, changes in (
        ("changed", nodes.renamed),
        ("changed", nodes.replaced),
        ("moved", nodes.moved),
    ):
        for change in changes:
            in_a[change.a] = kind
            in_b[change.b] = kind
    renamed = {change.a: change.b for change in (*nodes.renamed, *nodes.moved)}
    return Marks(a=in_a, b=in_b, renamed=renamed)


def _counted(nodes: Any) -> str:
    counts = ("moved", "added", "removed", "renamed", "replaced")
    found = [f"{len(getattr(nodes, name))} {name}" for name in counts if getattr(nodes, name)]
    said = f"{nodes.nodes_a} nodes in A, {nodes.nodes_b} in B, {nodes.matched} matched"
    return f"{said}: {', '.join(found) or 'all alike'}."


def _legend() -> Element:
    words = (
        "Outlined are nodes that one artifact alone has (added in B: green; removed from A: red, "
        "dashed), that another provider runs (moved), or that have another name or operator "
        "(changed). Groups with such nodes are outlined in pink. A click on a node shows "
        "the same one on the other side."
    )
    return tag("p", words, class_="quiet")


def _changes(report: DiffReport) -> Element:
    parts: list[Element] = []
    for area in report.areas:
        if not area.changes:
            continue
        parts.append(tag("h3", area.area, id=_anchor(area)))
        if area.reason:
            parts.append(tag("p", area.reason, class_="quiet"))
        rows: list[tuple[Content, ...]] = [
            (
                shown_name(change.subject),
                shown_name(change.what),
                _value(change.a),
                _value(change.b),
                "" if change.ratio is None else f"{change.ratio:.3g}",
            )
            for change in area.changes[:_MAX_SHOWN]
        ]
        parts.append(table(("of", "what", "A", "B", "#b / a"), rows))
        if len(area.changes) > _MAX_SHOWN:
            more = f"And {len(area.changes) - _MAX_SHOWN} more: 'aotc diff --json' has all."
            parts.append(tag("p", more))
    if not parts:
        parts.append(tag("p", "Nothing differs."))
    return section("changes", "Changes", *parts)


def _status(area: Any) -> Element:
    kind = {"same": "good", "changed": "warn"}.get(area.status, "quiet")
    return tag("span", f"{area.status}{f': {area.reason}' if area.reason else ''}", class_=kind)


def _anchor(area: Any) -> str:
    return f"area-{area.area}"


def _value(value: Json) -> str:
    return "" if value is None else shown_name(str(value), 300)
