"""Memory that is live while each node runs, as the order of nodes has it.

A value lives from the node that makes it to the last one that reads it, an output to the end.
Weights and the caller's inputs are not counted.  That a node may write over its input is not
either: ONNX Runtime's own plan can need less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from aotc.drawing.graph_reading import DrawnGraph
from aotc.records import record


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
