"""The page of a comparison: both graphs side by side, with what differs marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final
from xml.etree.ElementTree import Element

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.base.text import duration
from aotc.report.html.artifact_contents import Contents, read_contents
from aotc.report.html.graph_data import DrawnGraph
from aotc.report.html.graph_drawing import Look, fold, graph_svg
from aotc.report.html.page import (
    Content,
    bytes_text,
    drawing_buttons,
    page,
    section,
    short_provider,
    shown_name,
    swatch,
    table,
    tag,
)
from aotc.report.wording import both_values, only_pair, what_changed
from aotc.spec.diff_report import (
    AreaDiff,
    ComparedArtifact,
    DiffReport,
    MeasuredRow,
    NodeChange,
    NodesDiff,
    TensorChange,
)

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
            *_differences(report),
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
    changed = (*nodes.renamed, *nodes.replaced, *nodes.altered)
    for kind, changes in (("changed", changed), ("moved", nodes.moved)):
        in_a |= {change.a: kind for change in changes}
        in_b |= {change.b: kind for change in changes}
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
                *(
                    shown_name(value, _LONGEST_VALUE)
                    for value in both_values(area, change, _LONGEST_VALUE)
                ),
                "" if change.ratio is None else f"{change.ratio:.3g}",
            )
            for change in area.changes[:_MAX_SHOWN]
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


# Tables of a comparison: nodes and weights that differ, and what was measured at both builds.


# Of each table; `aotc diff --json` has all.
_MAX_ROWS: Final = 1000
_KINDS: Final = ("replaced", "altered", "renamed", "moved", "added", "removed")


def _differences(report: DiffReport) -> Iterator[Element]:
    """Sections of nodes, of weights and of measurements, each where there are any."""
    yield from _nodes(report)
    yield from _weights(report)
    if report.measured:
        words = "Times and peaks say as much of the two hosts, and are no difference."
        rows = [_measurement(row) for row in report.measured]
        figures = table(("", "", "#A", "#B", "#B / A"), rows)
        yield section("measured", "Measured", tag("p", words, class_="quiet"), figures)


def _nodes(report: DiffReport) -> Iterator[Element]:
    parts: list[Element] = []
    for nodes in report.nodes:
        rows = list(_differing(nodes))
        if rows:
            parts.append(tag("h3", shown_name(nodes.variant)))
            parts += _cut(("", "operator", "A", "on", "B", "on"), rows)
    if parts:
        yield section("nodes", "Nodes that differ", *parts)


def _differing(nodes: NodesDiff) -> Iterator[tuple[Content, ...]]:
    for kind in _KINDS:
        for change in getattr(nodes, kind):
            yield (
                _whole(kind),
                _operator(change),
                shown_name(change.a),
                _whole(short_provider(change.provider_a)),
                shown_name(change.b),
                _whole(short_provider(change.provider_b)),
            )


def _operator(change: NodeChange) -> str:
    """The operator without its domain, both where they differ; attributes that differ."""
    known = (op.rpartition("::")[2] for op in (change.op_a, change.op_b) if op)
    altered = f" ({', '.join(change.attributes)})" if change.attributes else ""
    return shown_name(" \u2192 ".join(dict.fromkeys(known)) + altered)


def _whole(text: str) -> Element:
    """A short text that is not broken into lines."""
    return tag("span", shown_name(text), class_="whole")


def _weights(report: DiffReport) -> Iterator[Element]:
    parts: list[Element] = []
    for weights in report.weights:
        ranked = sorted(weights.changed, key=lambda tensor: -(tensor.max_rel or 0.0))
        rows = [_tensor(tensor) for tensor in (*ranked, *weights.added, *weights.removed)]
        if not rows:
            continue
        equal = f"{weights.equal} equal, {weights.renamed} equal under another name."
        parts.append(tag("h3", shown_name(", ".join(weights.variants))))
        parts.append(tag("p", equal))
        parts += _cut(("A", "type", "B", "type", "#max abs", "#max rel"), rows)
    if parts:
        yield section("weights", "Weights that differ", *parts)


def _tensor(tensor: TensorChange) -> tuple[Content, ...]:
    return (
        shown_name(tensor.a),
        _type(tensor.dtype_a, tensor.shape_a),
        shown_name(tensor.b),
        _type(tensor.dtype_b, tensor.shape_b),
        "" if tensor.max_abs is None else f"{tensor.max_abs:.3g}",
        "" if tensor.max_rel is None else f"{tensor.max_rel:.3g}",
    )


def _type(dtype: str, shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else shown_name(f"{dtype} {list(shape)}")


def _measurement(row: MeasuredRow) -> tuple[Content, ...]:
    text = duration if row.unit == "seconds" else bytes_text
    values = ("" if value is None else text(value) for value in (row.a, row.b))
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    return (shown_name(row.variant), shown_name(row.what), *values, ratio)


def _cut(head: Sequence[str], rows: Sequence[tuple[Content, ...]]) -> Iterator[Element]:
    yield table(head, rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS:
        yield tag("p", f"And {len(rows) - _MAX_ROWS} more: 'aotc diff --json' has all.")


# Two graphs side by side, whose nodes know each other.


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
                tag("div", *drawing_buttons(), class_="tools"),
                tag("div", drawing, class_="canvas", role="region", aria_label=f"{letter}, drawn"),
                class_="side",
            )
        )
    return tag(
        "div",
        tag(
            "p",
            *(swatch(f"p{i % 6}", short_provider(name)) for i, name in enumerate(providers)),
            class_="legend",
        ),
        tag("div", *sides, class_="sides"),
    )
