"""Tables of a comparison: nodes and weights that differ, and what was measured at both builds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from aotc.contract.results.diff_report import (
    DiffReport,
    MeasuredRow,
    NodeChange,
    NodesDiff,
    TensorChange,
)
from aotc.drawing.figures import bytes_text, short_provider
from aotc.drawing.markup import Content, section, shown_name, table, tag
from aotc.reporting.plain_values import duration

# Of each table; `aotc diff --json` has all.
_MAX_ROWS: Final = 1000
_KINDS: Final = ("replaced", "altered", "renamed", "moved", "added", "removed")


def difference_tables(report: DiffReport) -> Iterator[Element]:
    """Sections of nodes, of weights and of measurements, each where there are any."""
    yield from _nodes(report)
    yield from _weights(report)
    if report.measured:
        words = "Times and peaks say as much of the two hosts, and are no difference."
        rows = [_measurement(row) for row in report.measured]
        told = table(("", "", "#A", "#B", "#B / A"), rows)
        yield section("measured", "Measured", tag("p", words, class_="quiet"), told)


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
