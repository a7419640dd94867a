"""Logarithms, and what leads up to them, that need small numbers which float16 does not have.

A logarithm turns a relative error into an absolute one.  Below 6e-5 float16 has fewer digits the
smaller a number is, and below 6e-8 only 0: powers of a spectrum and probabilities are that small.
A spectrum is kept as a whole, since its quiet parts are small sums of large products.
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
# With these a signal is turned into its spectrum; a network has activations as well.
_TRANSFORMS: Final = (_LED_THROUGH - {"Relu"}) | {"Cast", "Conv", "Gemm", "MatMul", "Neg"}
# Small results of numbers that are not small.
_ENDS: Final = frozenset({"Exp", "Sigmoid", "Softmax"})
# Further up a sum may be that of all blocks of a model.
_MAX_STEPS: Final = 8


def logarithm_nodes(graph: TypedGraph) -> set[int]:
    """The positions of logarithms, of cheap nodes at most 8 steps before, and of whole spectra."""
    logarithms = {index for index, node in enumerate(graph.nodes) if node.op_type == "Log"}
    found = set(logarithms)
    last = logarithms
    for _ in range(_MAX_STEPS):
        before = {made for index in last for made in _before(graph, index)}
        before = {index for index in before - found if _leads(graph, index)}
        found |= before
        last = {index for index in before if graph.nodes[index].op_type not in _ENDS}
    for index in logarithms:
        found |= _spectrum(graph, index)
    return found


def _spectrum(graph: TypedGraph, logarithm: int) -> set[int]:
    """All that leads from inputs to a logarithm; empty if some of it is no signal processing."""
    found: set[int] = set()
    pending = [logarithm]
    while pending:
        before = _before(graph, pending.pop()) - found
        if any(graph.nodes[index].op_type not in _TRANSFORMS for index in before):
            return set()
        found |= before
        pending += before
    return found


def _before(graph: TypedGraph, index: int) -> set[int]:
    names = [name for name in graph.nodes[index].input if graph.is_float(name)]
    return {graph.producer[name] for name in names if name in graph.producer}


def _leads(graph: TypedGraph, index: int) -> bool:
    return graph.nodes[index].op_type in _LED_THROUGH | _ENDS
