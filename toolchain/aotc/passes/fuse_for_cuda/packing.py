"""MultiHeadAttention and the three products before it, as one `com.microsoft::Attention`.

One product makes queries, keys and values of the same input, by weights that stand side by side.
Cases: three products, each with or without a bias; one product that is split.  The weights are
joined by a Concat of constants, which ONNX Runtime's optimizer folds: only its result is stored.
An attention with a past, or over another input, stays as it is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from aotc.passes.fuse_for_cuda.graph_values import (
    is_constant,
    made_by,
    replace_value,
    set_type,
    sizes,
)
from aotc.records import record

_MICROSOFT = "com.microsoft"


@record
class _Projection:
    source: ir.Value
    weights: ir.Value
    bias: ir.Value | None


def pack_attention(graph: ir.Graph) -> dict[str, int]:
    """Pack what can be packed; returns how many of which kind."""
    found = {"three products": 0, "split product": 0}
    joined: dict[tuple[object, ...], ir.Value] = {}
    for node in list(graph):
        if node.op_type != "MultiHeadAttention" or node.domain != _MICROSOFT:
            continue
        query, key, value, bias, padding, added, *past = (*node.inputs, *[None] * 8)[:8]
        if bias is not None or padding is not None or any(item is not None for item in past):
            continue
        projections = [_projection(item) for item in (query, key, value)]
        made: list[ir.Node] = []
        split = _split_product(query, key, value)
        if split is not None:
            source, weights = split.source, split.weights
            packed_bias = split.bias or _zeros(split, made)
            found["split product"] += 1
        else:
            three = [item for item in projections if item is not None]
            if len(three) < 3 or any(item.source is not three[0].source for item in three):
                continue
            source = three[0].source
            weights = _joined([item.weights for item in three], 1, made, joined)
            packed_bias = _joined_biases(three, made, joined)
            found["three products"] += 1
        attributes = dict(node.attributes)
        widths = [(sizes(item, 3) or ("", "", ""))[2] for item in (query, key, value)]
        if widths[0] != widths[2]:
            attributes["qkv_hidden_sizes"] = ir.AttrInt64s(
                "qkv_hidden_sizes", [int(width) for width in widths]
            )
        inputs: list[ir.Value | None] = [source, weights, packed_bias, None, None, added]
        while inputs[-1] is None:
            inputs.pop()
        packed = ir.Node(_MICROSOFT, "Attention", inputs, list(attributes.values()))
        graph.insert_before(node, [*made, packed])
        replace_value(node.outputs[0], packed.outputs[0])
    return {name: count for name, count in found.items() if count}


def _projection(value: ir.Value | None) -> _Projection | None:
    """The product with constant weights that makes a value of three dims, with its bias."""
    bias = None
    added = made_by(value, "Add")
    if added is not None:
        for product, other in (added.inputs, tuple(reversed(added.inputs))):
            if is_constant(other) and made_by(product, "MatMul") is not None:
                value, bias = product, other
                break
    node = made_by(value, "MatMul")
    if node is None:
        return None
    source, weights = node.inputs
    shape, known = sizes(weights, 2), sizes(source, 3)
    if source is None or weights is None or shape is None or known is None:
        return None
    if not is_constant(weights) or not isinstance(shape[1], int):
        return None
    if bias is not None and sizes(bias, 1) != (shape[1],):
        return None
    return _Projection(source=source, weights=weights, bias=bias)


def _split_product(*parts: ir.Value | None) -> _Projection | None:
    """The product whose thirds are queries, keys and values."""
    node = made_by(parts[0], "Split")
    if node is None or tuple(node.outputs) != parts:
        return None
    widths = {(sizes(part, 3) or ("", "", ""))[2] for part in parts}
    (width, *others) = widths
    found = _projection(node.inputs[0]) if isinstance(width, int) and not others else None
    # Thirds of the last axis, not of the length.
    if found is None or sizes(found.weights, 2) != ((sizes(found.source, 3) or ())[2], 3 * width):
        return None
    return found


def _joined(
    values: list[ir.Value],
    axis: int,
    made: list[ir.Node],
    joined: dict[tuple[object, ...], ir.Value],
) -> ir.Value:
    memo = (axis, *values)
    if memo not in joined:
        node = ir.Node("", "Concat", values, [ir.AttrInt64("axis", axis)])
        set_type(node.outputs[0], values[0])
        made.append(node)
        joined[memo] = node.outputs[0]
    return joined[memo]


def _joined_biases(
    three: list[_Projection], made: list[ir.Node], joined: dict[tuple[object, ...], ir.Value]
) -> ir.Value:
    """The biases side by side, 0 where there is none."""
    return _joined([item.bias or _zeros(item, made) for item in three], 0, made, joined)


def _zeros(item: _Projection, made: list[ir.Node]) -> ir.Value:
    """A bias that is 0: without one, ONNX Runtime's Attention crashes on the CPU."""
    width, dtype = (sizes(item.weights, 2) or (0, 0))[1], item.weights.dtype
    assert isinstance(width, int) and dtype is not None
    tensor = ir.tensor(np.zeros(width, dtype=dtype.numpy()), dtype=dtype)
    made.append(ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)]))
    return made[-1].outputs[0]
