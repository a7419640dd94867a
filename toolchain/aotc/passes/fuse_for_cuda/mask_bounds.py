"""Between which numbers a mask lies, as far as the graph alone says.

A mask is proven finite if all that it is made from is: constants of any size, and what operators
make of them by choosing, moving, adding and multiplying.  Of an input of the graph, and of what
another operator makes, nothing is known.  Of booleans, `true` is 1: a mask that exporters write for
a model without padding may be made from constants alone, and be `true` everywhere.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

from aotc.passes.fuse_for_cuda.graph_values import constant, is_op

Bounds = tuple[float, float]

_DEEP = 64
# The first input alone says which numbers there are.
_MOVING = {
    "Cast",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
}
# What spreads no infinity of an input alone, but reads all weights before it.
_PRODUCTS = {"Conv", "Gemm", "MatMul"}


def bounds(value: ir.Value | None) -> Bounds | None:
    """The least and the largest number of a value, both finite; None if that is not proven."""
    return _bounds(value, {}, _DEEP)


def lowest(dtype: ir.DataType | None) -> float:
    """The lowest finite number of a float type; that of float32 if the type is not known."""
    kind = np.float32 if dtype is None else dtype.numpy()
    return float(ml_dtypes.finfo(kind).min)  # type: ignore[no-untyped-call]


def holds_infinity(value: ir.Value) -> bool:
    """Whether a constant that the value is made from holds a number that is not finite."""
    pending, seen = [value], set[ir.Value]()
    while pending:
        found = pending.pop()
        if found in seen or (found.dtype is not None and not found.dtype.is_floating_point()):
            continue
        seen.add(found)
        known = _extremes(constant(found))
        if known is not None and not all(map(math.isfinite, known)):
            return True
        node = found.producer()
        if node is not None and node.op_type not in _PRODUCTS:
            pending += [item for item in node.inputs if item is not None]
    return False


def _bounds(
    value: ir.Value | None, known: dict[ir.Value, Bounds | None], depth: int
) -> Bounds | None:
    if value is None or depth == 0:
        return None
    if value not in known:
        found = _of_constant(value)
        if value.dtype == ir.DataType.BOOL:
            found = found or _of_truth(value, known, depth - 1) or (0.0, 1.0)
        found = found or _of_type(value) or _of_node(value, known, depth - 1)
        found = _rounded(found, value.dtype)
        known[value] = found if _is_held(found, value.dtype) else None
    return known[value]


def _rounded(found: Bounds | None, dtype: ir.DataType | None) -> Bounds | None:
    """As a float type rounds numbers, which keeps their order: the bounds stay bounds."""
    if found is None or dtype is None or not dtype.is_floating_point():
        return found
    with np.errstate(over="ignore"):
        low, high = np.array(found).astype(dtype.numpy()).astype(np.float64)
    return float(low), float(high)


def _is_held(found: Bounds | None, dtype: ir.DataType | None) -> bool:
    """Whether the type holds both numbers; what is rounded beyond its largest is infinite."""
    if found is None or not all(map(math.isfinite, found)):
        return False
    if dtype is None or not dtype.is_floating_point():
        return dtype is not None
    return lowest(dtype) <= found[0] and found[1] <= -lowest(dtype)


def _of_constant(value: ir.Value) -> Bounds | None:
    return _extremes(constant(value))


def _extremes(tensor: ir.TensorProtocol | None) -> Bounds | None:
    if tensor is None or tensor.dtype == ir.DataType.STRING:
        return None
    values = tensor.numpy()
    if not values.size:
        return (0.0, 0.0)
    return float(values.min()), float(values.max())


def _of_type(value: ir.Value) -> Bounds | None:
    """All numbers of an integer type."""
    if value.dtype is None or not value.dtype.is_integer():
        return None
    limits = ml_dtypes.iinfo(value.dtype.numpy())  # type: ignore[no-untyped-call]
    return float(limits.min), float(limits.max)


def _of_truth(value: ir.Value, known: dict[ir.Value, Bounds | None], depth: int) -> Bounds | None:
    """Of a boolean that moves, or is made from, other booleans."""
    node = value.producer()
    if node is None:
        return None
    if is_op(node, "ConstantOfShape"):
        return _filled(node)
    parts = [_bounds(item, known, depth) for item in node.inputs]
    # Every number but 0 is cast to `true`.
    if any(is_op(node, op_type) for op_type in _MOVING - {"Cast"}):
        return parts[0]
    if is_op(node, "Not") and parts[0] is not None:
        return 1 - parts[0][1], 1 - parts[0][0]
    # What nothing is known of may be either.
    known_parts = [part or (0.0, 1.0) for part in parts]
    if is_op(node, "And"):
        return min(low for low, _ in known_parts), min(high for _, high in known_parts)
    if is_op(node, "Or"):
        return max(low for low, _ in known_parts), max(high for _, high in known_parts)
    return None


def _filled(node: ir.Node) -> Bounds | None:
    """Of a ConstantOfShape."""
    filled = node.attributes["value"].as_tensor() if node.attributes else None
    return _extremes(filled) if filled is not None else (0.0, 0.0)


def _of_node(value: ir.Value, known: dict[ir.Value, Bounds | None], depth: int) -> Bounds | None:
    node = value.producer()
    if node is None:
        return None
    if is_op(node, "ConstantOfShape"):
        return _filled(node)
    if is_op(node, "Neg"):
        found = _bounds(node.inputs[0], known, depth)
        return (-found[1], -found[0]) if found is not None else None
    read = [value for value in node.inputs if value is not None]
    if any(is_op(node, op_type) for op_type in _MOVING):
        return _bounds(read[0], known, depth)
    if is_op(node, "Where"):
        chosen = {(0.0, 0.0): read[2:], (1.0, 1.0): read[1:2]}
        read = chosen.get(_bounds(read[0], known, depth) or (0.0, 1.0), read[1:])
    parts = [part for item in read if (part := _bounds(item, known, depth)) is not None]
    if len(parts) < len(read):
        return None
    if is_op(node, "Where") or is_op(node, "Concat"):
        return min(low for low, _ in parts), max(high for _, high in parts)
    if len(parts) != 2:
        return None
    (low, high), (other_low, other_high) = parts
    if is_op(node, "Add"):
        return low + other_low, high + other_high
    if is_op(node, "Sub"):
        return low - other_high, high - other_low
    if is_op(node, "Mul"):
        corners = [one * other for one in (low, high) for other in (other_low, other_high)]
        return min(corners), max(corners)
    return None
