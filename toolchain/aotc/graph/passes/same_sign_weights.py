"""Write weights of integer products in the sign of the activation, so that no CPU saturates.

`w` with zero point `z` becomes `w + 128` with `z + 128` (or both minus 128): each difference, and
so each product, stays the same bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aotc.base.records import record
from aotc.graph.passes.base import Pass, all_names, drop_unread, free_name
from aotc.graph.view import (
    attribute_of,
    constant_tensors,
    declared_values,
    defined_names,
    subgraphs,
)
from aotc.spec.providers import MICROSOFT
from aotc.spec.variant import Operands

if TYPE_CHECKING:
    import onnx


# Below this IR version, initializers are graph inputs too.
_MIN_IR = 4
_SHIFT = 128
# CPU features that make the sums exact; the one that kernels prefer comes first.
EXACT_FEATURES: Final = ("avx512_vnni", "avx_vnni")
ARCHITECTURE: Final = "x86_64"
# Operators whose output has the type of their input.
_TYPE_PRESERVING: Final = frozenset(
    {
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
# Operators from which ONNX Runtime's optimizer makes such products.
_SOURCES: Final = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


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
        used_names = all_names(model)
        new_names: dict[tuple[int, str], str] = {}
        for product in list(saturating_operands(model)):
            if product.fixable:
                _rewrite(product, new_names, used_names)
        drop_unread(model, {name for _, name in new_names})

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
        new_names[key] = free_name(f"{name}_same_sign", used_names)
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
        new_names[key] = free_name(f"{name}_zero_point", used_names)
        weights.graph.initializer.append(onnx.numpy_helper.from_array(value, new_names[key]))
    return new_names[key]


# Integer products of ONNX Runtime's CPU kernels whose results depend on the CPU's features.
#
# On x86-64 a kernel for an unsigned left and a signed right operand multiplies with VPMADDUBSW if
# the CPU has neither VNNI nor AMX: two neighbouring products are added in 16 bits, and the sum
# saturates. With VNNI it is exact, and products of operands of one sign are exact on every CPU. All
# of it was measured operator by operator (`docs/adr/0024-integer-products.md`).


@record(kw_only=False)
class Product:
    """An operator's operands, by input index.

    `activation` is None if the kernel produces it, unsigned; `activation_zero` has its type.
    `weights` are pairs of an operand and its zero point.  Sums can saturate if the activation is
    signed as `signed` says, and the weights have the other sign.
    """

    activation: int | None
    activation_zero: int | None
    weights: tuple[tuple[int, int], ...]
    signed: bool = False


PRODUCTS: Final[Mapping[tuple[str, str], Product]] = {
    ("", "MatMulInteger"): Product(0, 2, ((1, 3),)),
    ("", "QLinearMatMul"): Product(0, 2, ((3, 5),)),
    ("", "QLinearConv"): Product(0, 2, ((3, 5),)),
    # Its left operand is the weights.
    ("", "ConvInteger"): Product(0, 2, ((1, 3),), signed=True),
    (MICROSOFT, "QLinearConv"): Product(0, 2, ((3, 5),)),
    (MICROSOFT, "QGemm"): Product(0, 2, ((3, 5),)),
    (MICROSOFT, "MatMulIntegerToFloat"): Product(0, 4, ((1, 5),)),
    (MICROSOFT, "QAttention"): Product(0, 6, ((1, 7),)),
    (MICROSOFT, "DynamicQuantizeMatMul"): Product(None, None, ((1, 3),)),
    (MICROSOFT, "DynamicQuantizeLSTM"): Product(None, None, ((1, 9), (2, 11))),
}


def may_have_products(operators: Iterable[tuple[str, str]]) -> bool:
    """Whether a graph with these operators (domain, type) has or may get integer products."""
    return any(op in _SOURCES or (domain, op) in PRODUCTS for domain, op in operators)


@record(kw_only=False)
class Constant:
    """A constant tensor, and the graph that contains it, whose names it uses."""

    tensor: onnx.TensorProto
    graph: onnx.GraphProto


@record(kw_only=False)
class Saturating:
    """An operand whose sums may saturate; `weights` is None if it is not a constant.

    `zero` is the zero point, None if the node states none (`zero_stated`) or it is not a constant.
    """

    node: onnx.NodeProto
    graph: onnx.GraphProto
    operand: int
    zero_point: int
    weights: Constant | None
    zero: Constant | None
    zero_stated: bool

    @property
    def fixable(self) -> bool:
        """Whether the weights can be written in the activation's sign."""
        return self.weights is not None and (self.zero is not None or not self.zero_stated)


def saturating_operands(model: onnx.ModelProto) -> Iterator[Saturating]:
    """Operands of opposite sign whose values do not rule out that neighbouring sums saturate.

    Weights must be in the file: external data, and anything that is not a constant, may have any
    value.  Functions are left out, because ONNX Runtime inlines them before it optimizes.
    """
    for found in _graph_products(model.graph, {}, {}):
        if found.kind == "saturating-signs":
            yield from found.operands


def count_products(model: onnx.ModelProto) -> Counter[Operands]:
    """How many integer products there are of each kind; weights as in `saturating_operands`."""
    return Counter(found.kind for found in _graph_products(model.graph, {}, {}))


@record(kw_only=False)
class _NodeOperands:
    """A product of a graph: its kind, and the operands whose sign is not the activation's."""

    kind: Operands
    operands: tuple[Saturating, ...] = ()


def _graph_products(
    graph: onnx.GraphProto, outer: Mapping[str, Constant], outer_types: Mapping[str, int]
) -> Iterator[_NodeOperands]:
    own = defined_names(graph)
    constants = {name: found for name, found in outer.items() if name not in own}
    constants |= _constants(graph)
    types = _types(graph, outer_types)
    for node in graph.node:
        product = PRODUCTS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if product is not None:
            yield _node_operands(node, graph, product, constants, types)
        for subgraph in subgraphs(node):
            yield from _graph_products(subgraph, constants, types)


def _node_operands(
    node: onnx.NodeProto,
    graph: onnx.GraphProto,
    product: Product,
    constants: Mapping[str, Constant],
    types: Mapping[str, int],
) -> _NodeOperands:
    import onnx

    unsigned, signed = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
    activation, opposite = (signed, unsigned) if product.signed else (unsigned, signed)
    if product.activation is not None and product.activation_zero is not None:
        zero = _input(node, product.activation_zero)
        found = types.get(zero) or types.get(_input(node, product.activation))
        if found not in (None, activation):
            return _NodeOperands("exact-signs")
    opposing = [
        (operand, zero_point)
        for operand, zero_point in product.weights
        if types.get(_input(node, operand), opposite) == opposite
    ]
    if not opposing:
        return _NodeOperands("exact-signs")
    constants_read = [constants.get(_input(node, operand)) for operand, _ in opposing]
    if all(
        constant is not None and _cannot_saturate(constant.tensor, product.signed)
        for constant in constants_read
    ):
        return _NodeOperands("seven-bits")
    # All weights of a node have one type.
    operands = []
    for (operand, zero_point), weights in zip(opposing, constants_read, strict=True):
        zero = _input(node, zero_point)
        operands.append(
            Saturating(
                node=node,
                graph=graph,
                operand=operand,
                zero_point=zero_point,
                weights=weights,
                zero=constants.get(zero),
                zero_stated=bool(zero),
            )
        )
    return _NodeOperands("saturating-signs", tuple(operands))


def _input(node: onnx.NodeProto, index: int) -> str:
    return str(node.input[index]) if index < len(node.input) else ""


def _cannot_saturate(tensor: onnx.TensorProto, activation_signed: bool) -> bool:
    """Whether two products of any activation with these weights fit into 16 bits."""
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    values = onnx.numpy_helper.to_array(tensor).astype("int16")
    # Signed 16 bits: 2 * 255 * 64 = 32640 and 2 * 128 * 127 = 32512 are below 32768.
    return not values.size or int(abs(values).max()) <= (127 if activation_signed else 64)


def _constants(graph: onnx.GraphProto) -> dict[str, Constant]:
    return {name: Constant(tensor, graph) for name, tensor in constant_tensors(graph).items()}


def _types(graph: onnx.GraphProto, outer: Mapping[str, int]) -> dict[str, int]:
    """Element types of values, as far as this graph and those around it state them."""
    found = dict(outer)
    found |= {
        value.name: value.type.tensor_type.elem_type
        for value in declared_values(graph)
        if value.type.tensor_type.elem_type
    }
    found |= {name: tensor.data_type for name, tensor in constant_tensors(graph).items()}
    for node in graph.node:
        if (element := _output_type(node, found)) is not None:
            found[node.output[0]] = element
    return found


def _output_type(node: onnx.NodeProto, types: Mapping[str, int]) -> int | None:
    """Element type of the first output of a node that quantizes or keeps types."""
    import onnx

    if not node.output:
        return None
    if node.op_type == "DynamicQuantizeLinear":
        return int(onnx.TensorProto.UINT8)
    if node.op_type == "QuantizeLinear":
        zero = _input(node, 2)
        return attribute_of(node, "output_dtype", 0) or (
            types.get(zero) if zero else int(onnx.TensorProto.UINT8)
        )
    return types.get(_input(node, 0)) if node.op_type in _TYPE_PRESERVING else None


def exact_feature(isa: tuple[str, ...] | None) -> str:
    """The CPU feature with which all sums are exact; empty if the CPU has none."""
    return next((name for name in EXACT_FEATURES if name in (isa or ())), "")
