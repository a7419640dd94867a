"""Write weights of integer products in the sign of the activation, so that no CPU saturates.

`w` with zero point `z` becomes `w + 128` with `z + 128` (or both minus 128): each difference, and
so each product, stays the same bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.passes.base import Pass, walk_graphs
from aotc.passes.same_sign_weights.products import Constant, Saturating, saturating_operands
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# Below this IR version, initializers are graph inputs too.
_MIN_IR = 4
_SHIFT = 128


@record
class SameSignWeights(Pass):
    """Rewrite constant weights whose sums may saturate; external data must have been read."""

    name = "same-sign-weights"

    def requires(self, model: onnx.ModelProto) -> str:
        """Weights and zero points without external data."""
        import onnx

        for product in saturating_operands(model):
            for constant in (product.weights, product.zero):
                if (
                    constant is not None
                    and constant.tensor.data_location == onnx.TensorProto.EXTERNAL
                ):
                    return f"{constant.tensor.name} has external data"
        return ""

    def apply(self, model: onnx.ModelProto) -> None:
        model.ir_version = max(model.ir_version, _MIN_IR)
        used_names = _names(model)
        new_names: dict[tuple[int, str], str] = {}
        for product in list(saturating_operands(model)):
            if product.fixable:
                _rewrite(product, new_names, used_names)
        _drop_unread(model, {name for _, name in new_names})

    def ensures(self, model: onnx.ModelProto) -> str:
        left = [product.node.name for product in saturating_operands(model) if product.fixable]
        return f"{left[0]} still has operands of two signs" if left else ""


def _rewrite(
    product: Saturating, new_names: dict[tuple[int, str], str], used_names: set[str]
) -> None:
    node, weights = product.node, product.weights
    assert weights is not None
    while len(node.input) <= product.zero_point:
        node.input.append("")
    name = node.input[product.operand]
    zero = node.input[product.zero_point]
    node.input[product.operand] = _shifted(weights, name, new_names, used_names)
    if product.zero is not None:
        node.input[product.zero_point] = _shifted(product.zero, zero, new_names, used_names)
    else:
        node.input[product.zero_point] = _zero(weights, name, new_names, used_names)


def _shifted(
    constant: Constant, name: str, new_names: dict[tuple[int, str], str], used_names: set[str]
) -> str:
    """The name of the same tensor in the other sign."""
    import numpy as np
    import onnx

    key = (id(constant.graph), name)
    if key not in new_names:
        values = onnx.numpy_helper.to_array(constant.tensor).astype(np.int16)
        signed = constant.tensor.data_type == onnx.TensorProto.INT8
        shifted = (
            (values + _SHIFT).astype(np.uint8) if signed else (values - _SHIFT).astype(np.int8)
        )
        new_names[key] = _free(f"{name}_same_sign", used_names)
        constant.graph.initializer.append(onnx.numpy_helper.from_array(shifted, new_names[key]))
    return new_names[key]


def _zero(
    weights: Constant, name: str, new_names: dict[tuple[int, str], str], used_names: set[str]
) -> str:
    """The name of a zero point for weights without one."""
    import numpy as np
    import onnx

    signed = weights.tensor.data_type == onnx.TensorProto.INT8
    key = (id(weights.graph), f"zero point of {weights.tensor.data_type}")
    if key not in new_names:
        value = np.array(_SHIFT, np.uint8) if signed else np.array(-_SHIFT, np.int8)
        new_names[key] = _free(f"{name}_zero_point", used_names)
        weights.graph.initializer.append(onnx.numpy_helper.from_array(value, new_names[key]))
    return new_names[key]


def _free(name: str, used_names: set[str]) -> str:
    while name in used_names:
        name += "_"
    used_names.add(name)
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
    """Remove replaced constants that nothing reads any more."""
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
