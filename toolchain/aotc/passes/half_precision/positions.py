"""Angles and indices: numbers whose integer part counts, for which half precision is too coarse.

At 2048 float16 has no fraction left, so sines of positions would be wrong, and sizes rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.passes.half_precision.typed_graph import MOVING

if TYPE_CHECKING:
    from aotc.passes.half_precision.typed_graph import TypedGraph

_ARITHMETIC: Final = MOVING | {
    "Add", "Cast", "Ceil", "Div", "Exp", "Floor", "MatMul", "Mul", "Neg", "Pow", "Range",
    "Reciprocal", "Round", "Sqrt", "Sub",
}  # fmt: skip
_ANGLES: Final = frozenset({"Cos", "Sin"})


def position_nodes(graph: TypedGraph) -> set[int]:
    """Nodes that compute sines of positions, or indices, with all that leads to them.

    They start from inputs, constants and integers, and only do arithmetic.
    """
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        to_integer = (
            node.op_type == "Cast"
            and graph.is_float(node.input[0])
            and not any(graph.is_float(name) for name in node.output)
            and "int" in graph.types.get(node.output[0], "")
        )
        if node.op_type not in _ANGLES and not to_integer:
            continue
        cone = _cone(graph, index)
        if cone is not None:
            found |= cone
    return found


def _cone(graph: TypedGraph, start: int) -> set[int] | None:
    """The nodes that lead to `start`, with it; None if some do more than arithmetic."""
    seen = {start}
    pending = [start]
    while pending:
        for name in graph.nodes[pending.pop()].input:
            before = graph.producer.get(name)
            if before is None or before in seen or not graph.is_float(name):
                continue
            if graph.nodes[before].op_type not in _ARITHMETIC:
                return None
            seen.add(before)
            pending.append(before)
    return seen
