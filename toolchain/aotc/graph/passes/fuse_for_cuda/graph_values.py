"""What fusions read of a graph: constants, shapes, nodes before a value, bounds of a mask."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

# From (batch, length, heads, width), and back.
HEADS_FIRST = (0, 2, 1, 3)
_MAX_READ = 4096
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


def made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node of the standard operator `op_type` that makes `value`; None if another does."""
    node = value.producer() if value is not None else None
    return node if node is not None and is_op(node, op_type) else None


def is_op(node: ir.Node, op_type: str) -> bool:
    """Whether a node is of the standard operator `op_type`."""
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def array(value: ir.Value | None) -> object | None:
    """The numpy array of a small constant; None for others."""
    tensor = constant(value)
    return tensor.numpy() if tensor is not None and tensor.size <= _MAX_READ else None


def whole_array(value: ir.Value) -> np.ndarray:
    """The numpy array of a constant of any size."""
    tensor = constant(value)
    assert tensor is not None
    return np.asarray(tensor.numpy())


def scalar(value: ir.Value | None) -> float | None:
    """The number of a constant with one element."""
    tensor = constant(value)
    return float(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None


def broadcast_scalar(value: ir.Value | None, over: ir.Value | None) -> float | None:
    """The number of a constant with one element that gives its result no more dims than `over`."""
    tensor = constant(value)
    if tensor is None or over is None or tensor.size != 1:
        return None
    rank = len(tensor.shape)
    if rank and (over.shape is None or len(over.shape) < rank):
        return None
    return scalar(value)


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of a constant of any size; None of an initializer that a caller may replace."""
    if value is None or value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)


def scaled(node: ir.Node | None) -> tuple[ir.Value, float] | None:
    """What a node multiplies by a constant number, and the number; the shape stays."""
    if node is None:
        return None
    first, second = (*node.inputs, None)[:2]
    if is_op(node, "Mul"):
        for value, other in ((first, second), (second, first)):
            factor = broadcast_scalar(other, value)
            if value is not None and factor is not None:
                return value, factor
    if is_op(node, "Div") and first is not None and (factor := broadcast_scalar(second, first)):
        return first, 1.0 / factor
    return None


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is an initializer, transposed, or some columns: ONNX Runtime folds that."""
    for op_type in ("Gather", "Transpose"):
        node = made_by(value, op_type)
        if node is not None and all(constant(item) is not None for item in node.inputs[1:]):
            value = node.inputs[0]
    return value is not None and value.is_initializer() and not value.is_graph_input()


def sizes(value: ir.Value | None, rank: int) -> tuple[int | str, ...] | None:
    """The sizes of a value of this rank; "" for one that is not known.  None for other ranks."""
    if value is None or value.shape is None or len(value.shape) != rank:
        return None
    return tuple(dim if isinstance(dim, int) else str(dim.value or "") for dim in value.shape)


def same(one: int | str, other: int | str) -> bool:
    """Whether two sizes are known to be equal."""
    return one == other and one != ""


def permutation(node: ir.Node | None) -> tuple[int, ...]:
    """The permutation of a Transpose."""
    if node is None or "perm" not in node.attributes:
        return ()
    return tuple(node.attributes["perm"].as_ints())


def integer(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute."""
    return node.attributes[name].as_int() if name in node.attributes else default


def number(node: ir.Node, name: str, default: float) -> float:
    """A float attribute."""
    return node.attributes[name].as_float() if name in node.attributes else default


def before_heads(value: ir.Value | None, heads: int) -> ir.Value | None:
    """What was split into a value of (batch, length, heads, width); None if nothing was.

    It is of (batch, length, heads x width).
    """
    node = made_by(value, "Reshape")
    flat = node.inputs[0] if node is not None else None
    before, after = sizes(flat, 3), sizes(value, 4)
    if before is None or after is None or after[2] != heads or not isinstance(after[3], int):
        return None
    if before[2] != heads * after[3]:
        return None
    return flat if same(before[0], after[0]) or same(before[1], after[1]) else None


def part_of(value: ir.Value | None) -> tuple[ir.Value, int, int] | None:
    """What `value` is a part of along the last axis, with its first index and the one after it."""
    node = value.producer() if value is not None else None
    whole = node.inputs[0] if node is not None else None
    if node is None or whole is None or whole.shape is None or value is None:
        return None
    last = len(whole.shape) - 1
    if is_op(node, "Slice"):
        found = part_along(node, last)
    elif is_op(node, "Split") and integer(node, "axis", 0) in (last, -1):
        found = _split_off(node, value, last)
    else:
        return None
    return (whole, *found) if found is not None else None


def part_along(node: ir.Node, axis: int) -> tuple[int, int] | None:
    """The first index of a Slice of `axis` alone, in steps of 1, and the one after its last."""
    whole = node.inputs[0]
    rank = len(whole.shape) if whole is not None and whole.shape is not None else 0
    size = (sizes(whole, rank) or ())[axis] if axis < rank else None
    # Since opset 10 they are inputs.
    given = [array(value) for value in node.inputs[1:]]
    read = [np.ravel(item).tolist() for item in given if isinstance(item, np.ndarray)]
    if not isinstance(size, int) or len(read) != len(given) or not 3 <= len(read) <= 4:
        return None
    if any(len(item) != 1 for item in read):
        return None
    start, stop, stated, *step = (int(item[0]) for item in read)
    if stated % rank != axis or step not in ([], [1]):
        return None
    first, after, _ = slice(start, stop).indices(size)
    return first, max(first, after)


def _split_off(node: ir.Node, value: ir.Value, last: int) -> tuple[int, int] | None:
    """The range of one output of a Split of the last axis."""
    start = 0
    for output in node.outputs:
        width = (sizes(output, last + 1) or ("",))[-1]
        if not isinstance(width, int):
            return None
        if output is value:
            return start, start + width
        start += width
    return None


def uncast(value: ir.Value | None) -> ir.Value | None:
    """The value before a Cast between float types."""
    node = made_by(value, "Cast")
    before = node.inputs[0] if node is not None else None
    if before is None or before.dtype is None or not before.dtype.is_floating_point():
        return value
    return before


def only_user(value: ir.Value) -> ir.Node | None:
    """The node of the same graph that alone reads `value`, which is no output of the graph."""
    users = [usage.node for usage in value.uses()]
    if len(users) != 1 or value.is_graph_output():
        return None
    return users[0] if users[0].graph is value.graph else None


def set_type(value: ir.Value, other: ir.Value) -> None:
    """Give `value` the element type of `other`, if that is known."""
    if other.dtype is not None:
        value.dtype = other.dtype


def depends_on(values: list[ir.Value], nodes: list[ir.Node]) -> bool:
    """Whether one of `values` is computed from what one of `nodes` makes."""
    seen: set[ir.Node] = set()
    pending = [value.producer() for value in values]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        if node in nodes:
            return True
        seen.add(node)
        pending += [value.producer() for value in node.inputs if value is not None]
    return False


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let every reader of `old`, and the graph's outputs, take `new`."""
    if new.dtype is None:
        set_type(new, old)
    new.shape = new.shape or old.shape
    if old.is_graph_output():
        name, old.name = old.name, f"{old.name}_unfused"
        new.name = name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


# Between which numbers a mask lies, as far as the graph alone says.
#
# A mask is proven finite if all that it is made from is: constants of any size, and what operators
# make of them by choosing, moving, adding and multiplying. Of an input of the graph, and of what
# another operator makes, nothing is known. Of booleans, `true` is 1: a mask that exporters write
# for a model without padding may be made from constants alone, and be `true` everywhere.


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
        found = _extremes(constant(value))
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
