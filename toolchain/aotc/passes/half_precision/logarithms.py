"""Logarithms, and what leads up to them, that need small numbers which float16 does not have.

A logarithm turns a relative error into an absolute one.  Below 6e-5 float16 has fewer digits the
smaller a number is, and below 6e-8 only 0: powers of a spectrum and probabilities are that small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.passes.half_precision.typed_graph import MOVING

if TYPE_CHECKING:
    from aotc.passes.half_precision.typed_graph import TypedGraph

_LED_THROUGH: Final = MOVING | {
    "Abs", "Add", "Clip", "Div", "Max", "Min", "Mul", "Pow", "ReduceL2", "ReduceMean", "ReduceSum",
    "ReduceSumSquare", "Relu", "Sqrt", "Sub", "Sum",
}  # fmt: skip
# Small results of numbers that are not small.
_ENDS: Final = frozenset({"Exp", "Sigmoid", "Softmax"})
# Further up a sum may be that of all blocks of a model.
_MAX_STEPS: Final = 8


def logarithm_nodes(graph: TypedGraph) -> set[int]:
    """The positions of logarithms, and of cheap nodes at most 8 steps before one."""
    found = {index for index, node in enumerate(graph.nodes) if node.op_type == "Log"}
    last = set(found)
    for _ in range(_MAX_STEPS):
        before = {
            graph.producer[name]
            for index in last
            for name in graph.nodes[index].input
            if graph.is_float(name) and name in graph.producer
        }
        before = {index for index in before - found if _leads(graph, index)}
        found |= before
        last = {index for index in before if graph.nodes[index].op_type not in _ENDS}
    return found


def _leads(graph: TypedGraph, index: int) -> bool:
    return graph.nodes[index].op_type in _LED_THROUGH | _ENDS
