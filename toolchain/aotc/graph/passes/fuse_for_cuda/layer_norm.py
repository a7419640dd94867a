"""Layer normalization in single operators, over the last axis or over another one.

Cases: (x - mean) / sqrt(variance + epsilon) by Div, or by the product with a reciprocal or a power
of -0.5; the variance by Pow or by a product with itself; the difference computed once or twice; the
axes of the means as an attribute or as an input; with a factor and a sum of one axis, either, or
none; computed in float32 between casts.  Over an axis that is not the last, as the channels of an
image, the node stands between two Transposes, which cancel with those around it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from aotc.base.records import record, replace
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    array,
    broadcast_scalar,
    integer,
    is_op,
    made_by,
    only_user,
    replace_value,
    set_type,
    sizes,
    uncast,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes

# The operator is a standard one since.
_SINCE: Final = 17
_RANKS: Final = range(2, 6)
# It computes in float32, and returns the type of its input.
_TYPES: Final = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@record
class _Normalized:
    """`source` less its mean along `axis`, over its standard deviation: `value`.

    It is `cast` that is computed with; that is `source` itself where no type is changed.
    """

    source: ir.Value
    cast: ir.Value
    value: ir.Value
    axis: int
    epsilon: float
    width: int


def fuse_layer_norm(graph: ir.Graph) -> dict[str, int]:
    """Fuse normalizations along one axis; returns how many along the last one, and how many not."""
    found, new = {"last axis": 0, "another axis": 0}, NewNodes(graph)
    if graph.opset_imports.get("", 1) < _SINCE:
        return {}
    for node in list(graph):
        core = _core(node) if is_op(node, "Sqrt") or is_op(node, "Pow") else None
        if core is None:
            continue
        value, weights, bias = _affine(core)
        if value.dtype != core.source.dtype:
            core = replace(core, source=core.cast)
        if value.dtype != core.source.dtype or value.dtype not in _TYPES:
            continue
        _rewrite(new, core, value, weights, bias)
        last = core.axis == len(core.source.shape or ()) - 1
        found["last axis" if last else "another axis"] += 1
    return {name: count for name, count in found.items() if count}


def _core(node: ir.Node) -> _Normalized | None:
    """The normalization whose standard deviation, or its inverse, `node` computes."""
    total = made_by(node.inputs[0], "Add")
    inverse = is_op(node, "Pow")
    if total is None or (inverse and broadcast_scalar(node.inputs[1], node.inputs[0]) != -0.5):
        return None
    for variance, added in (total.inputs, tuple(reversed(total.inputs))):
        mean = made_by(variance, "ReduceMean")
        epsilon = broadcast_scalar(added, variance)
        if mean is None or epsilon is None or epsilon < 0:
            continue
        difference, source, axis = _squared(mean)
        ends = _quotient(node, inverse=inverse)
        if difference is None or source is None or ends is None:
            continue
        numerator, value = ends
        shape = source.shape
        width = shape[axis] if shape is not None else None
        subtracted = made_by(uncast(numerator), "Sub")
        cast = subtracted.inputs[0] if subtracted is not None else None
        if cast is None or not isinstance(width, int) or _difference(numerator) != (source, axis):
            continue
        return _Normalized(
            source=source, cast=cast, value=value, axis=axis, epsilon=epsilon, width=width
        )
    return None


def _squared(mean: ir.Node) -> tuple[ir.Value | None, ir.Value | None, int]:
    """What is squared before `mean`, and what it is the difference of, if that is of one axis."""
    square = mean.inputs[0].producer() if mean.inputs[0] is not None else None
    if square is None:
        return None, None, 0
    value, other = (*square.inputs, None)[:2]
    twice = is_op(square, "Mul") and value is other
    if not twice and not (is_op(square, "Pow") and broadcast_scalar(other, value) == 2):
        return None, None, 0
    found = _difference(value)
    if found is None or _axis(mean) != found[1]:
        return None, None, 0
    return value, *found


def _difference(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """What `value` is, less its own mean along an axis; and the axis."""
    node = made_by(uncast(value), "Sub")
    mean = made_by(uncast(node.inputs[1]), "ReduceMean") if node is not None else None
    if node is None or mean is None or node.inputs[0] is None:
        return None
    source, averaged = uncast(node.inputs[0]), uncast(mean.inputs[0])
    axis = _axis(mean)
    return (source, axis) if source is averaged and source is not None and axis else None


def _axis(mean: ir.Node) -> int | None:
    """The one axis of a ReduceMean that keeps it; None of others, and of the batch's."""
    if not integer(mean, "keepdims", 1) or mean.inputs[0] is None or mean.inputs[0].shape is None:
        return None
    axes = array(mean.inputs[1]) if len(mean.inputs) > 1 else None
    if axes is None and "axes" in mean.attributes:
        axes = np.array(mean.attributes["axes"].as_ints())
    rank = len(mean.inputs[0].shape)
    if not isinstance(axes, np.ndarray) or axes.size != 1 or rank not in _RANKS:
        return None
    return int(axes.reshape(-1)[0]) % rank or None


def _quotient(node: ir.Node, *, inverse: bool) -> tuple[ir.Value, ir.Value] | None:
    """What is divided by the standard deviation of `node`, and the quotient."""
    deviation = node.outputs[0]
    user = only_user(deviation)
    if user is None:
        return None
    inverted = is_op(user, "Div") and broadcast_scalar(user.inputs[0], deviation) == 1
    if not inverse and (is_op(user, "Reciprocal") or inverted):
        deviation, inverse = user.outputs[0], True
        user = only_user(deviation)
    elif not inverse and is_op(user, "Div") and user.inputs[1] is deviation:
        return (user.inputs[0], user.outputs[0]) if user.inputs[0] is not None else None
    if not inverse or user is None or not is_op(user, "Mul"):
        return None
    (other,) = [value for value in user.inputs if value is not deviation] or [None]
    return (other, user.outputs[0]) if other is not None else None


def _affine(core: _Normalized) -> tuple[ir.Value, ir.Value | None, ir.Value | None]:
    """The value after the factor and the sum that follow, as far as they do, and these two."""
    value, found = core.value, []
    for op_type in ("Mul", "Add"):
        node = only_user(value)
        if node is not None and is_op(node, "Cast") and node.outputs[0].dtype == core.source.dtype:
            value, node = node.outputs[0], only_user(node.outputs[0])
        other = None
        if node is not None and is_op(node, op_type):
            first, second = node.inputs
            other = _along(second if first is value else first, core)
        found.append(other)
        if other is not None and node is not None:
            value = node.outputs[0]
    return value, found[0], found[1]


def _along(value: ir.Value | None, core: _Normalized) -> ir.Value | None:
    """The constant of one axis that `value` holds, if it lies along the normalized one alone."""
    rank = len(core.source.shape or ())
    shape = value.shape if value is not None else None
    if value is None or shape is None or len(shape) > rank:
        return None
    wanted = [core.width if axis == core.axis else 1 for axis in range(rank)][rank - len(shape) :]
    if list(shape) != wanted or core.width not in wanted:
        return None
    while (node := value.producer()) is not None and node.op_type in ("Reshape", "Unsqueeze"):
        if node.inputs[0] is None:
            return None
        value = node.inputs[0]
    held = value.is_initializer() and not value.is_graph_input()
    return value if held or value.const_value is not None else None


def _rewrite(
    new: NewNodes,
    core: _Normalized,
    value: ir.Value,
    weights: ir.Value | None,
    bias: ir.Value | None,
) -> None:
    last, source = value.producer(), core.source
    assert last is not None and source.shape is not None
    rank = len(source.shape)
    known = sizes(source, rank) or ()
    to_last = [*(axis for axis in range(rank) if axis != core.axis), core.axis]
    if core.axis != rank - 1:
        source = new.transposed(source, to_last, [known[axis] for axis in to_last])
    operands = [source, _flat(weights, core, new)]
    if bias is not None:
        operands.append(_flat(bias, core, new))
    attributes = {"axis": -1, "epsilon": core.epsilon}
    result = new.node("LayerNormalization", operands, attributes).outputs[0]
    set_type(result, source)
    result.shape = source.shape
    if core.axis != rank - 1:
        result = new.transposed(result, [to_last.index(axis) for axis in range(rank)], known)
    new.place_before(last)
    replace_value(value, result)


def _flat(value: ir.Value | None, core: _Normalized, new: NewNodes) -> ir.Value:
    """A factor or a sum of one axis and of the source's type; factors of 1 if there are none."""
    dtype = core.source.dtype or ir.DataType.FLOAT
    if value is None:
        return new.constant(ir.tensor(np.ones(core.width, dtype.numpy())))
    if value.shape is None or len(value.shape) != 1:
        value = new.reshaped(value, [core.width], [core.width])
    if value.dtype != dtype:
        value = new.node("Cast", [value], {"to": dtype.value}).outputs[0]
    return value
