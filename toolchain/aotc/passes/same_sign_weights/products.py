"""Integer products of ONNX Runtime's CPU kernels whose results depend on the CPU's features.

On x86-64 a kernel for an unsigned left and a signed right operand multiplies with VPMADDUBSW if the
CPU has neither VNNI nor AMX: two neighbouring products are added in 16 bits, and the sum saturates.
With VNNI it is exact, and products of operands of one sign are exact on every CPU.  All of it was
measured operator by operator (`docs/adr/0024-integer-products.md`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aotc.contract.manifest.product_forms import Operands
from aotc.contract.operator_domains import MICROSOFT, STANDARD
from aotc.partitioning.graph import subgraphs_of
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# CPU features that make the sums exact; the one that kernels prefer comes first.
EXACT_FEATURES: Final = ("avx512_vnni", "avx_vnni")
ARCHITECTURE: Final = "x86_64"


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
        if found.kind == "saturating signs":
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
    constants = {**outer, **_constants(graph)}
    types = _types(graph, outer_types)
    for node in graph.node:
        product = PRODUCTS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if product is not None:
            yield _node_operands(node, graph, product, constants, types)
        for attribute in node.attribute:
            for subgraph in subgraphs_of(attribute):
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
            return _NodeOperands("exact signs")
    opposing = [
        (operand, zero_point)
        for operand, zero_point in product.weights
        if types.get(_input(node, operand), opposite) == opposite
    ]
    if not opposing:
        return _NodeOperands("exact signs")
    constants_read = [constants.get(_input(node, operand)) for operand, _ in opposing]
    if all(
        constant is not None and _cannot_saturate(constant.tensor, product.signed)
        for constant in constants_read
    ):
        return _NodeOperands("weights in 7 bits")
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
    return _NodeOperands("saturating signs", tuple(operands))


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
    found = {tensor.name: Constant(tensor, graph) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in STANDARD and node.output:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    found[node.output[0]] = Constant(attribute.t, graph)
    return found


def _types(graph: onnx.GraphProto, outer: Mapping[str, int]) -> dict[str, int]:
    """Element types of values, as far as this graph and those around it state them."""
    found = dict(outer)
    found |= {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.output, *graph.input)
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type
    }
    for tensor in graph.initializer:
        found[tensor.name] = tensor.data_type
    for node in graph.node:
        if (element := _output_type(node, found)) is not None:
            found[node.output[0]] = element
    return found


def _output_type(node: onnx.NodeProto, types: Mapping[str, int]) -> int | None:
    """Element type of the first output of a constant, or a node that quantizes or keeps types."""
    import onnx

    if not node.output:
        return None
    if node.op_type == "DynamicQuantizeLinear":
        return int(onnx.TensorProto.UINT8)
    if node.op_type == "Constant":
        return next((a.t.data_type for a in node.attribute if a.HasField("t")), None)
    if node.op_type == "QuantizeLinear":
        zero = _input(node, 2)
        stated = next((int(a.i) for a in node.attribute if a.name == "output_dtype" and a.i), None)
        return stated or (types.get(zero) if zero else int(onnx.TensorProto.UINT8))
    return types.get(_input(node, 0)) if node.op_type in _TYPE_PRESERVING else None


def exact_feature(isa: tuple[str, ...] | None) -> str:
    """The CPU feature with which all sums are exact; empty if the CPU has none."""
    return next((name for name in EXACT_FEATURES if name in (isa or ())), "")
