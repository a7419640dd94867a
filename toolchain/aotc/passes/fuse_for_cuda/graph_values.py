"""What fusions read of a graph: constants, shapes, and the nodes before a value."""

from __future__ import annotations

import onnx_ir as ir

_MAX_READ = 4096


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


def scalar(value: ir.Value | None) -> float | None:
    """The number of a constant with one element."""
    tensor = constant(value)
    return float(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None


def spread_scalar(value: ir.Value | None, over: ir.Value | None) -> float | None:
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
            factor = spread_scalar(other, value)
            if value is not None and factor is not None:
                return value, factor
    if is_op(node, "Div") and first is not None and (factor := spread_scalar(second, first)):
        return first, 1.0 / factor
    return None


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is an initializer, or a transposed one: ONNX Runtime folds that."""
    node = made_by(value, "Transpose")
    value = node.inputs[0] if node is not None else value
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


def uncast(value: ir.Value | None) -> ir.Value | None:
    """The value before a Cast between float types."""
    node = made_by(value, "Cast")
    before = node.inputs[0] if node is not None else None
    if before is None or before.dtype is None or not before.dtype.is_floating_point():
        return value
    return before


def only_user(value: ir.Value) -> ir.Node | None:
    """The node that alone reads `value`, which is no output of the graph."""
    users = [usage.node for usage in value.uses()]
    return users[0] if len(users) == 1 and not value.is_graph_output() else None


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
