"""Memory over the graph of each variant, with the node at the peak, as a chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from xml.etree.ElementTree import Element

from aotc.base.records import record
from aotc.report.html.artifact_contents import Contents
from aotc.report.html.graph_data import DrawnGraph
from aotc.report.html.page import bytes_text, elements, flowing, section, shown_name, tag
from aotc.report.html.sections import sizes_text
from aotc.report.sheets.memory import memory_sheet
from aotc.report.sheets.variants import cost_table


def memory_section(contents: Contents) -> Element:
    """Plan and measurement by variant, and a curve for each graph."""
    variants = contents.summary.variants
    parts = [*elements([cost_table(variants), *memory_sheet(variants)])]
    planned = {variant.name: variant for variant in contents.manifest.variants}
    for drawn in contents.drawn:
        graph = drawn.graph
        if graph is None:
            parts.append(tag("p", drawn.why_not, class_="bad"))
            continue
        domain = planned[drawn.names[0]].domain or contents.manifest.domain
        curves = [("optimal sizes", graph.sizes, {n: d.opt for n, d in domain.dims.items()})]
        if graph.sizes_max != graph.sizes:
            curves.append(
                ("largest sizes", graph.sizes_max, {n: d.max for n, d in domain.dims.items()})
            )
        for title, sizes, dims in curves:
            curve = memory_curve(graph, sizes)
            heading = f"{', '.join(drawn.names)}, {title} ({sizes_text(dims)})"
            parts.append(tag("h3", *flowing(heading)))
            if curve.peak is None:
                parts.append(tag("p", "No value's size is known: nothing can be drawn."))
                continue
            node = graph.nodes[curve.peak]
            parts.append(
                tag(
                    "div",
                    memory_chart(curve, node.name, heading),
                    class_="scroll",
                    tabindex=0,
                    role="region",
                    aria_label=heading,
                )
            )
            if curve.unknown:
                said = (
                    f"{curve.unknown} of {curve.values} values have sizes that inference does "
                    "not find; they are not counted, so the curve is a lower bound."
                )
                parts.append(tag("p", said, class_="warn"))
            said = f"At the peak runs {shown_name(node.op, 60)} {shown_name(node.name)}."
            parts.append(tag("p", *flowing(said)))
    said = (
        "A curve has what is live by the order of nodes, without weights and inputs. ONNX Runtime "
        "may reuse an input's memory for an output, and keep more than it needs."
    )
    parts.append(tag("p", said, class_="quiet"))
    return section("memory", "Memory", *parts)


# Memory that is live while each node runs, as the order of nodes has it.
#
# A value lives from the node that makes it to the last one that reads it, an output to the end.
# Weights and the caller's inputs are not counted. That a node may write over its input is not
# either: ONNX Runtime's own plan can need less.


@record
class MemoryCurve:
    """Bytes that are live at each node, in order of execution."""

    bytes: tuple[int, ...]
    peak: Annotated[int | None, "index of the node at the peak; None if no size is known"]
    unknown: Annotated[int, "values of unknown size, which are not counted"]
    values: Annotated[int, "values that nodes make"]


def memory_curve(graph: DrawnGraph, sizes: Mapping[str, int]) -> MemoryCurve:
    """The curve for values of these `sizes` in bytes."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.inputs:
            last[value] = index
    end = len(graph.nodes) - 1
    results = set(graph.outputs)
    change = [0] * (len(graph.nodes) + 1)
    unknown = values = 0
    for index, node in enumerate(graph.nodes):
        for value in node.outputs:
            size = sizes.get(value)
            if size is None and value not in last and value not in results:
                continue  # An output that nothing reads may not even be made.
            values += 1
            if size is None:
                unknown += 1
                continue
            change[index] += size
            change[(end if value in results else max(last.get(value, index), index)) + 1] -= size
    curve = []
    live = 0
    for difference in change[:-1]:
        live += difference
        curve.append(live)
    peak = curve.index(max(curve)) if curve and max(curve) > 0 else None
    return MemoryCurve(bytes=tuple(curve), peak=peak, unknown=unknown, values=values)


# The chart of live memory over the nodes, as inline SVG.


_WIDTH: Final = 900
_HEIGHT: Final = 200
_LEFT: Final = 74
_BOTTOM: Final = 34
_TOP: Final = 24


def memory_chart(curve: MemoryCurve, node: str, title: str) -> Element:
    """The curve with its peak, at which `node` runs."""
    assert curve.peak is not None
    top = curve.bytes[curve.peak]
    count = len(curve.bytes)

    def place(index: float, size: float) -> tuple[float, float]:
        across = _LEFT + index / count * (_WIDTH - _LEFT - 8)
        return across, _TOP + (1 - size / top) * (_HEIGHT - _TOP - _BOTTOM)

    path = f"M{_LEFT} {_HEIGHT - _BOTTOM}"
    for index, size in enumerate(curve.bytes):
        x, y = place(index, size)
        path += f"L{x:.1f} {y:.1f}H{place(index + 1, size)[0]:.1f}"
    path += f"L{place(count, 0)[0]:.1f} {_HEIGHT - _BOTTOM}Z"
    x, y = place(curve.peak + 0.5, top)
    on_left = curve.peak > count / 2
    lines = []
    for share in (0.0, 0.5, 1.0):
        _, height = place(0, top * share)
        lines.append(tag("line", x1=_LEFT, x2=_WIDTH - 8, y1=height, y2=height, class_="rule"))
        lines.append(
            tag("text", bytes_text(top * share), x=_LEFT - 6, y=height + 4, text_anchor="end")
        )
    said = f"{title}: the peak is {bytes_text(top)} at node {curve.peak + 1}, {shown_name(node)}"
    return tag(
        "svg",
        tag("title", said),
        *lines,
        tag("path", d=path, class_="area"),
        tag("circle", cx=x, cy=y, r=4, class_="peak"),
        tag(
            "text",
            f"{bytes_text(top)} at node {curve.peak + 1}, {shown_name(node, 48)}",
            class_="peak",
            x=x + (-8 if on_left else 8),
            y=y - 8,
            text_anchor="end" if on_left else "start",
        ),
        tag(
            "text",
            f"nodes in order of execution, 1 to {count}",
            x=(_LEFT + _WIDTH) / 2,
            y=_HEIGHT - 8,
            text_anchor="middle",
        ),
        class_="chart",
        role="img",
        aria_label=said,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH,
        height=_HEIGHT,
    )
