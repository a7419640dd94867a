from __future__ import annotations

from aotc.report.html.graph_data import DrawnGraph, DrawnNode
from aotc.report.html.memory_section import memory_curve


def node(name: str, inputs: str, outputs: str) -> DrawnNode:
    return DrawnNode(
        name=name, op="Op", inputs=tuple(inputs.split()), outputs=tuple(outputs.split())
    )


GRAPH = DrawnGraph(
    nodes=(
        node("0", "x", "a"),
        node("1", "a", "b"),
        node("2", "b a", "c"),
        node("3", "c", "y"),
    ),
    inputs=("x",),
    outputs=("y", "b"),
)


def test_values_live_from_their_node_to_their_last_reader() -> None:
    curve = memory_curve(GRAPH, {"x": 1000, "a": 1, "b": 10, "c": 100, "y": 5})
    # b is an output, and lives to the end.
    assert curve.bytes == (1, 11, 111, 115)
    assert (curve.peak, curve.unknown, curve.values) == (3, 0, 4)


def test_unknown_sizes_are_counted() -> None:
    curve = memory_curve(GRAPH, {"a": 7})
    assert curve.bytes == (7, 7, 7, 0)
    assert (curve.peak, curve.unknown) == (0, 3)


def test_no_size_at_all() -> None:
    assert memory_curve(GRAPH, {}).peak is None
