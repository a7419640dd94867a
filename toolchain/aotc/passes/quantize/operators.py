"""Which nodes each form can quantize, and why not the others of the same operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from aotc.contract.operator_domains import STANDARD
from aotc.contract.precision.quantization import QuantizedForm
from aotc.passes.quantize.scoped_constants import Scope
from aotc.passes.quantize.weighted_products import attribute_of

if TYPE_CHECKING:
    import onnx

_FLOAT: Final = 1
_MATRIX: Final = 2

# Operators that gain by integers themselves.
PRODUCTS: Final = frozenset({"Conv", "Gemm", "MatMul"})
# Operators that take integers between those, so that fewer values are converted.
CARRIERS: Final = frozenset(
    {
        "Add",
        "AveragePool",
        "Clip",
        "Concat",
        "Flatten",
        "GlobalAveragePool",
        "LeakyRelu",
        "MaxPool",
        "Mul",
        "Pad",
        "Relu",
        "Reshape",
        "Resize",
        "Sigmoid",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
STATIC: Final = PRODUCTS | CARRIERS | {"Gather", "LSTM"}
DYNAMIC: Final = frozenset({"Gather", "Gemm", "LSTM", "MatMul"})
WEIGHTS: Final = frozenset({"Gather", "Gemm", "MatMul"})
BY_FORM: Final[Mapping[str, frozenset[str]]] = {
    "static": STATIC,
    "dynamic": DYNAMIC,
    "weights": WEIGHTS,
}
# Why a node stays, as the manifest counts it.
NOT_CONSTANT: Final = "weights that are not constant"
NOT_FINITE: Final = "values that are not finite"
ATTRIBUTES: Final = "attributes"
SMALL: Final = "small table"
EMPTY: Final = "weights without elements"
RANK: Final = "weights of more than two dims"
# A smaller table is not worth a scale for each row.
_MIN_TABLE: Final = 16384


def why_not(node: onnx.NodeProto, scope: Scope, form: QuantizedForm) -> str:
    """Why a product, a lookup or a recurrence cannot be quantized in a form; empty if it can.

    A Gather reads a constant of float32.  The values of constants are read.
    """
    if node.op_type == "Gather":
        return _why_no_table(node, scope)
    places = (1, 2) if node.op_type == "LSTM" else (1,)
    for at in places:
        found = scope.constant(node.input[at]) if len(node.input) > at else None
        if found is None or found[0].data_type != _FLOAT:
            return NOT_CONSTANT
        if 0 in found[0].dims:
            return EMPTY
        if not _is_finite(found[0]):
            return NOT_FINITE
    if node.op_type == "Gemm":
        return _why_no_gemm(node, scope)
    if node.op_type == "LSTM":
        # The integer kernel has no other layout, and takes no limits of its own.
        peculiar = attribute_of(node, "layout", 0) or attribute_of(node, "clip", 0.0)
        return ATTRIBUTES if peculiar or attribute_of(node, "input_forget", 0) else ""
    rank = len(_tensor(node, scope).dims)
    if node.op_type == "MatMul" and rank < _MATRIX:
        return ATTRIBUTES
    # Blocks are of matrices alone.
    return RANK if form == "weights" and rank > _MATRIX else ""


def _why_no_gemm(node: onnx.NodeProto, scope: Scope) -> str:
    plain = (
        attribute_of(node, "alpha", 1.0) == 1.0
        and attribute_of(node, "beta", 1.0) == 1.0
        and not attribute_of(node, "transA", 0)
    )
    if not plain:
        return ATTRIBUTES
    if len(node.input) > 2 and node.input[2]:
        bias = scope.constant(node.input[2])
        if bias is None:
            return NOT_CONSTANT
        if len(bias[0].dims) != 1 or not _is_finite(bias[0]):
            return ATTRIBUTES if len(bias[0].dims) != 1 else NOT_FINITE
    return ""


def _why_no_table(node: onnx.NodeProto, scope: Scope) -> str:
    found = scope.constant(node.input[0])
    assert found is not None
    tensor = found[0]
    if len(tensor.dims) != _MATRIX or attribute_of(node, "axis", 0) != 0:
        return ATTRIBUTES
    if tensor.dims[0] * tensor.dims[1] < _MIN_TABLE:
        return SMALL
    return "" if _is_finite(tensor) else NOT_FINITE


def _tensor(node: onnx.NodeProto, scope: Scope) -> onnx.TensorProto:
    found = scope.constant(node.input[1])
    assert found is not None
    return found[0]


def _is_finite(tensor: onnx.TensorProto) -> bool:
    import onnx

    return bool(np.isfinite(onnx.numpy_helper.to_array(tensor)).all())


def looks_up(node: onnx.NodeProto, scope: Scope) -> bool:
    """Whether a Gather reads a constant of float32."""
    found = scope.constant(node.input[0])
    return found is not None and found[0].data_type == _FLOAT


def is_standard(node: onnx.NodeProto, operators: Collection[str]) -> bool:
    """Whether a node is one of ONNX's own `operators`."""
    return node.domain in STANDARD and node.op_type in operators
