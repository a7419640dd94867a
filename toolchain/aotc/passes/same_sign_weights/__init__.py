"""Weights of integer products in the sign of the activation, so that no CPU's sums saturate.

`w` with zero point `z` becomes `w + 128` with `z + 128` (or both less 128): each difference, and so
each product, is what it was, bit by bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.passes.base import Pass, walk_graphs
from aotc.passes.same_sign_weights.products import Constant, Saturating, saturating
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# Below it, initializers are graph inputs too.
_LEAST_IR = 4
_SHIFT = 128


@record
class SameSignWeights(Pass):
    """Rewrite constant weights that may saturate; external data must have been read."""

    name = "same-sign-weights"

    def requires(self, model: onnx.ModelProto) -> str:
        """The values themselves."""
        import onnx

        for each in saturating(model):
            for constant in (each.weights, each.zero):
                if (
                    constant is not None
                    and constant.tensor.data_location == onnx.TensorProto.EXTERNAL
                ):
                    return f"{constant.tensor.name} has external data"
        return ""

    def apply(self, model: onnx.ModelProto) -> None:
        model.ir_version = max(model.ir_version, _LEAST_IR)
        taken = _names(model)
        made: dict[tuple[int, str], str] = {}
        for each in list(saturating(model)):
            if each.mendable:
                _rewrite(each, made, taken)
        _drop_unread(model, {name for _, name in made})

    def ensures(self, model: onnx.ModelProto) -> str:
        left = [each.node.name for each in saturating(model) if each.mendable]
        return f"{left[0]} still has operands of two signs" if left else ""


def _rewrite(each: Saturating, made: dict[tuple[int, str], str], taken: set[str]) -> None:
    node, weights = each.node, each.weights
    assert weights is not None
    while len(node.input) <= each.zero_point:
        node.input.append("")
    name = node.input[each.operand]
    zero = node.input[each.zero_point]
    node.input[each.operand] = _shifted(weights, name, made, taken)
    if each.zero is not None:
        node.input[each.zero_point] = _shifted(each.zero, zero, made, taken)
    else:
        node.input[each.zero_point] = _zero(weights, name, made, taken)


def _shifted(
    constant: Constant, name: str, made: dict[tuple[int, str], str], taken: set[str]
) -> str:
    """The name of the same tensor in the other sign."""
    import numpy as np
    import onnx

    key = (id(constant.graph), name)
    if key not in made:
        values = onnx.numpy_helper.to_array(constant.tensor).astype(np.int16)
        signed = constant.tensor.data_type == onnx.TensorProto.INT8
        moved = (values + _SHIFT).astype(np.uint8) if signed else (values - _SHIFT).astype(np.int8)
        made[key] = _free(f"{name}_same_sign", taken)
        constant.graph.initializer.append(onnx.numpy_helper.from_array(moved, made[key]))
    return made[key]


def _zero(weights: Constant, name: str, made: dict[tuple[int, str], str], taken: set[str]) -> str:
    """The name of a zero point for weights that had none."""
    import numpy as np
    import onnx

    signed = weights.tensor.data_type == onnx.TensorProto.INT8
    key = (id(weights.graph), f"zero point of {weights.tensor.data_type}")
    if key not in made:
        value = np.array(_SHIFT, np.uint8) if signed else np.array(-_SHIFT, np.int8)
        made[key] = _free(f"{name}_zero_point", taken)
        weights.graph.initializer.append(onnx.numpy_helper.from_array(value, made[key]))
    return made[key]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _names(model: onnx.ModelProto) -> set[str]:
    found: set[str] = set()
    for graph in walk_graphs(model):
        found.update(value.name for value in (*graph.input, *graph.output))
        found.update(tensor.name for tensor in graph.initializer)
        for node in graph.node:
            found.update((*node.input, *node.output))
    return found


def _drop_unread(model: onnx.ModelProto, replaced: set[str]) -> None:
    """Drop those constants that were replaced and that nothing reads any more."""
    read: set[str] = set()
    for graph in walk_graphs(model):
        read.update(value.name for value in graph.output)
        for node in graph.node:
            read.update(node.input)
    for graph in walk_graphs(model):
        kept = [t for t in graph.initializer if t.name in read or t.name not in replaced]
        if len(kept) < len(graph.initializer):
            del graph.initializer[:]
            graph.initializer.extend(kept)
