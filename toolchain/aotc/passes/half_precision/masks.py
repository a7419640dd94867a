"""Attention masks: very negative numbers that are only added to what a softmax reads.

Exporters write the lowest number of float32, which half precision lacks.  A softmax gives exactly 0
for any number that is some hundred below the largest, so another one that low means the same; the
rewritten numbers leave room for sums of several masks and for the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aotc.passes.half_precision.typed_graph import MOVING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import onnx

    from aotc.passes.half_precision.half_types import HalfType
    from aotc.passes.half_precision.typed_graph import TypedGraph

    Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]

LOWEST: Final = -16384.0
_COMBINING: Final = MOVING | {"Add", "Mul", "Cast", "Gather", "ScatterND", "Trilu"}
# The input that is added to the scores, by operator.
_BIAS: Final = {
    ("com.microsoft", "Attention"): 5,
    ("com.microsoft", "MultiHeadAttention"): 5,
    ("com.microsoft", "GroupQueryAttention"): 10,
    ("", "Attention"): 3,
}


def lower_masks(graph: TypedGraph, half: HalfType, read: Read) -> int:
    """Rewrite the constants that mask, in place; returns how many."""
    import numpy as np
    import onnx

    found = 0
    known: dict[str, bool] = {}
    for name, tensor in graph.constants.items():
        if not graph.is_float(name) or not _only_masks(graph, name, known):
            continue
        values = read(tensor)
        if _is_mask(values, half):
            lowered = np.where(np.isfinite(values) & (values < LOWEST), np.float32(LOWEST), values)
            tensor.CopyFrom(onnx.numpy_helper.from_array(lowered.astype(np.float32), name))
            found += 1
    for node in graph.nodes:
        if node.op_type != "ConstantOfShape" or not _only_masks(graph, node.output[0], known):
            continue
        for attribute in node.attribute:
            values = onnx.numpy_helper.to_array(attribute.t)
            if values.dtype == np.float32 and _is_mask(values, half):
                lowered = np.full(values.shape, LOWEST, np.float32)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(lowered))
                found += 1
    return found


def _is_mask(values: np.ndarray[Any, Any], half: HalfType) -> bool:
    import numpy as np

    finite = values[np.isfinite(values)]
    return bool(finite.size) and bool(finite.min() < -half.largest) and bool(finite.max() <= 0)


def _only_masks(graph: TypedGraph, name: str, known: dict[str, bool]) -> bool:
    """Whether every path from a value ends in the scores of a softmax."""
    if name not in known:
        known[name] = False
        readers = graph.readers.get(name, ())
        known[name] = (
            bool(readers)
            and name not in graph.outputs
            and all(_masks(graph, index, name, known) for index in readers)
        )
    return known[name]


def _masks(graph: TypedGraph, index: int, name: str, known: dict[str, bool]) -> bool:
    node = graph.nodes[index]
    if node.op_type == "Softmax":
        return True
    position = _BIAS.get((node.domain, node.op_type))
    if position is not None:
        return [at for at, given in enumerate(node.input) if given == name] == [position]
    if node.op_type not in _COMBINING:
        return False
    made = [given for given in node.output if given]
    return all(graph.is_float(given) and _only_masks(graph, given, known) for given in made)
