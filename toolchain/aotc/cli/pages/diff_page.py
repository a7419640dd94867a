"""The page that `aotc diff --html` writes: areas, and both graphs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from aotc.cli.pages.html_page import page, shown, table
from aotc.cli.render import duration, provider, short, size
from aotc.cli.views.change_words import both_values, only_pair, what_changed
from aotc.contract.results.diff_report import (
    AreaDiff,
    ComparedArtifact,
    DiffReport,
    NodeChange,
    NodesDiff,
    TensorChange,
    WeightsDiff,
)

_STYLE: Final = """
body { max-width: 76rem; }
table.graphs, table.area { table-layout: fixed; } table.area th:last-child { width: 6rem; }
table.graphs td { width: 50%; padding: .15rem .6rem; }
table.graphs small { color: var(--soft); }
tr.new td + td { background: var(--new); } tr.gone td:first-child { background: var(--gone); }
tr.moved td, tr.replaced td { background: var(--moved); }
tr.run td { color: var(--soft); }
"""
# Equal nodes in a row, of which more are folded.
_SHOWN_EQUAL: Final = 6
_LONGEST_VALUE: Final = 300


def diff_page(report: DiffReport, graphs: Mapping[str, Sequence[NodeChange]]) -> str:
    """One page of a comparison; `graphs` holds the aligned nodes of each pair of variants."""
    changed = [area for area in report.areas if area.status == "changed"]
    same = ", ".join(area.area for area in report.areas if area.status == "same")
    skipped = [area for area in report.areas if area.status == "not-compared"]
    title = f"{report.a.path} and {report.b.path}"
    body = [
        f"<h1>{shown(title)}</h1>",
        "<p>UNVERIFIED: both artifacts are shown as they describe themselves.</p>",
        table(
            ("", "name", "id", "built", "payload"),
            map(_artifact, ("A", "B"), (report.a, report.b)),
            1,
        ),
    ]
    if report.failed:
        body.append("<h2>Failed</h2>")
        rows = [(each.code, each.what, each.expected, each.found) for each in report.failed]
        body.append(table(("code", "", "expected", "found"), rows))
    body.append(f"<p>Unchanged: {shown(same) or 'nothing'}.</p>")
    body += [f"<p>Not compared: {shown(f'{each.area}: {each.reason}')}</p>" for each in skipped]
    for area in changed:
        body += _area(area, only_pair(report))
    for nodes in report.nodes:
        body += _graphs(nodes, graphs.get(nodes.variant, ()))
    for weights in report.weights:
        body += _weights(weights)
    body += _measured(report)
    return page(title, body, _STYLE)


def _artifact(letter: str, artifact: ComparedArtifact) -> tuple[str, ...]:
    return (
        letter,
        artifact.name,
        short(artifact.artifact_id),
        artifact.built_at,
        size(artifact.payload_bytes),
    )


def _area(area: AreaDiff, only: str) -> Iterator[str]:
    rows = [
        (
            what_changed(area, change, only),
            *both_values(area, change, _LONGEST_VALUE),
            f"{change.ratio:.4g}" if change.ratio is not None else "",
        )
        for change in area.changes
    ]
    yield f"<section><h2>{shown(area.area)}: {len(rows)} different</h2>"
    yield table(("", "A", "B", "B / A"), rows, 1, kind="area")
    yield "</section>"


def _graphs(nodes: NodesDiff, rows: Sequence[NodeChange]) -> Iterator[str]:
    words = [
        f"{len(found)} {what}"
        for what, found in (
            ("moved", nodes.moved),
            ("added", nodes.added),
            ("removed", nodes.removed),
            ("replaced", nodes.replaced),
            ("renamed", nodes.renamed),
        )
        if found
    ]
    told = ", ".join(words) or "no node differs"
    yield f"<section><h2>Graphs of {shown(nodes.variant)}: {told}</h2>"
    how = "" if nodes.by_structure else " Nodes are matched by name alone."
    yield f"<p>In order of execution; equal nodes in a row are folded.{how}</p>"
    yield '<table class="graphs"><thead><tr><th>A</th><th>B</th></tr></thead><tbody>'
    for kind, group in groupby(rows, _kind):
        together = list(group)
        if kind or len(together) <= _SHOWN_EQUAL:
            yield from (_row(row, kind) for row in together)
        else:
            sides = (_side(row.a, row.op_a, row.provider_a) for row in together)
            inner = "".join(f"<div>{side}</div>" for side in sides)
            yield (
                f'<tr class="run"><td colspan="2"><details><summary>{len(together)} equal nodes'
                f"</summary>{inner}</details></td></tr>"
            )
    yield "</tbody></table></section>"


def _kind(row: NodeChange) -> str:
    """The class of a row; empty if the node is equal in both."""
    if not row.a:
        return "new"
    if not row.b:
        return "gone"
    if row.provider_a != row.provider_b:
        return "moved"
    if row.op_a != row.op_b:
        return "replaced"
    return "renamed" if row.a != row.b else ""


# Said in words too, for who does not see colours.
_WORDS: Final = {"new": "added", "gone": "removed"}


def _row(row: NodeChange, kind: str) -> str:
    one = _side(row.a, row.op_a, row.provider_a)
    other = _side(row.b, row.op_b, row.provider_b)
    word = f" <small>{_WORDS.get(kind, kind)}</small>" if kind else ""
    if kind == "gone":
        one += word
    else:
        other += word
    return f'<tr class="{kind or "equal"}"><td>{one}</td><td>{other}</td></tr>'


def _side(name: str, op: str, runs_on: str) -> str:
    if not name:
        return ""
    return f"<b>{shown(op)}</b> {shown(name)} <small>{shown(provider(runs_on))}</small>"


def _weights(weights: WeightsDiff) -> Iterator[str]:
    tensors = (*weights.changed, *weights.added, *weights.removed)
    if not tensors:
        return
    labels = shown(", ".join(weights.variants))
    equal = f"{weights.equal} equal, {weights.renamed} equal under another name"
    yield f"<section><h2>Weights of {labels}: {len(tensors)} different</h2><p>{equal}.</p>"
    ranked = sorted(tensors, key=lambda tensor: -(tensor.max_rel or 0.0))
    columns = ("A", "", "B", "", "max abs", "max rel")
    yield table(columns, map(_tensor, ranked), 2)
    yield "</section>"


def _tensor(tensor: TensorChange) -> tuple[str, ...]:
    return (
        tensor.a,
        _type(tensor.dtype_a, tensor.shape_a),
        tensor.b,
        _type(tensor.dtype_b, tensor.shape_b),
        f"{tensor.max_abs:.3g}" if tensor.max_abs is not None else "",
        f"{tensor.max_rel:.3g}" if tensor.max_rel is not None else "",
    )


def _type(dtype: str, shape: tuple[int, ...] | None) -> str:
    return f"{dtype} {list(shape)}" if shape is not None else ""


def _measured(report: DiffReport) -> Iterator[str]:
    if not report.measured:
        return
    yield "<section><h2>Measured at the builds, not compared</h2>"
    rows = []
    for row in report.measured:
        values = (
            "" if value is None else duration(value) if row.unit == "seconds" else size(int(value))
            for value in (row.a, row.b)
        )
        rows.append((row.variant, row.what, *values, f"{row.ratio:.3g}" if row.ratio else ""))
    yield table(("", "", "A", "B", "B / A"), rows, 3)
    yield "</section>"
