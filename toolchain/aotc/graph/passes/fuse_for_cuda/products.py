"""Gelu and FastGelu with the bias before them; linear layers of three dims, and parts of them."""

from __future__ import annotations

import math

import onnx_ir as ir

from aotc.graph.passes.fuse_for_cuda.graph_values import (
    HEADS_FIRST,
    broadcast_scalar,
    integer,
    is_constant,
    is_op,
    made_by,
    number,
    only_user,
    part_along,
    permutation,
    replace_value,
    same,
    scaled,
    set_type,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes
from aotc.spec.providers import MICROSOFT

_CUBE = 0.044715
# Queries, keys and values.
_FEWEST_PARTS = 3
# Half the distance of neighbours, roughly doubled by an inverse.
_PRECISION = {ir.DataType.FLOAT16: 2e-3, ir.DataType.BFLOAT16: 2e-2}


def fuse_gelu(graph: ir.Graph) -> dict[str, int]:
    """Fuse Gelu and FastGelu, each with the bias before it; returns how many of which kind.

    Cases: x/2 * (1 + erf(x/sqrt(2))), with the factors in any order, by division or by product; x/2
    * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))), likewise; the standard operator Gelu (opset 20
    and later), of either kind, where a bias is added before it.  Constants are compared as exactly
    as their type holds them, so that graphs in half are found as well.
    """
    found = {"erf": 0, "tanh": 0, "bias": 0}
    for node in list(graph):
        if is_op(node, "Erf") and (ends := _erf(node)) is not None:
            found["bias"] += _rewrite(graph, *ends, "Gelu")
            found["erf"] += 1
        elif is_op(node, "Tanh") and (ends := _tanh(node)) is not None:
            found["bias"] += _rewrite(graph, *ends, "FastGelu")
            found["tanh"] += 1
        elif is_op(node, "Gelu") and node.inputs[0] is not None:
            kind = node.attributes["approximate"].as_string() if node.attributes else "none"
            if _biased(node.inputs[0]) is not None:
                op_type = "FastGelu" if kind == "tanh" else "Gelu"
                found["bias"] += _rewrite(graph, node.inputs[0], node.outputs[0], op_type)
    return {name: count for name, count in found.items() if count}


def _rewrite(graph: ir.Graph, source: ir.Value, result: ir.Value, op_type: str) -> bool:
    """Replace `result`; returns whether a bias went into the node as well."""
    inputs, biased = [source], _biased(source)
    if biased is not None:
        op_type, inputs = "BiasGelu" if op_type == "Gelu" else op_type, [*biased]
    node = ir.Node(MICROSOFT, op_type, inputs)
    last = result.producer()
    assert last is not None
    graph.insert_before(last, node)
    replace_value(result, node.outputs[0])
    return biased is not None


def _biased(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """What is added up in `value`, if that is a constant as wide as the last dim."""
    node = made_by(value, "Add")
    if node is None:
        return None
    for source, bias in (node.inputs, tuple(reversed(node.inputs))):
        if source is None or bias is None or source.shape is None or not is_constant(bias):
            continue
        width = source.shape[-1] if len(source.shape) else None
        if isinstance(width, int) and sizes(bias, 1) == (width,):
            return source, bias
    return None


def _erf(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    inner = _factored(node.inputs[0], 1 / math.sqrt(2))
    return _product(node, inner) if inner is not None else None


def _tanh(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    total = made_by(_factored(node.inputs[0], math.sqrt(2 / math.pi)), "Add")
    if total is None:
        return None
    for source, cubic in (total.inputs, tuple(reversed(total.inputs))):
        cube = _factored(cubic, _CUBE)
        power = made_by(cube, "Pow")
        if (
            power is not None
            and power.inputs[0] is source
            and broadcast_scalar(power.inputs[1], source) == 3
        ):
            return _product(node, source) if source is not None else None
    return None


def _factored(value: ir.Value | None, factor: float) -> ir.Value | None:
    """What is multiplied by `factor` in `value`."""
    found = scaled(value.producer()) if value is not None else None
    if found is None or not _close(found[1], factor, found[0].dtype):
        return None
    return found[0]


def _close(one: float, other: float, dtype: ir.DataType | None) -> bool:
    precision = _PRECISION.get(dtype, 1e-5) if dtype is not None else 1e-5
    return math.isclose(one, other, rel_tol=precision)


def _product(node: ir.Node, source: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """`source`, and the value of source/2 * (1 + node)."""
    total = only_user(node.outputs[0])
    if total is None or not is_op(total, "Add"):
        return None
    if 1 not in [broadcast_scalar(item, node.outputs[0]) for item in total.inputs]:
        return None
    value, missing = total.outputs[0], {"source", "half"}
    while missing:
        step = only_user(value)
        if step is None or not is_op(step, "Mul"):
            return None
        other = step.inputs[1] if step.inputs[0] is value else step.inputs[0]
        halved = _factored(other, 0.5)
        if other is source and "source" in missing:
            missing.remove("source")
        elif broadcast_scalar(other, source) == 0.5 and "half" in missing:
            missing.remove("half")
        elif halved is source and len(missing) == 2:
            missing.clear()
        else:
            return None
        value = step.outputs[0]
    return source, value


def unflatten_projections(graph: ir.Graph) -> dict[str, int]:
    """Write each Gemm between two Reshapes as a product of three dims; returns how many.

    Exporters write a linear layer so.  The Reshapes hide from other fusions that queries, keys and
    values are made from one input, and that a sum skips the layer.
    """
    count = 0
    for node in list(graph):
        if not is_op(node, "Gemm") or not _is_plain(node):
            continue
        flattened, split = made_by(node.inputs[0], "Reshape"), only_user(node.outputs[0])
        if flattened is None or split is None or not is_op(split, "Reshape"):
            continue
        source = flattened.inputs[0]
        before, flat = sizes(source, 3), sizes(flattened.outputs[0], 2)
        after, product = sizes(split.outputs[0], 3), sizes(node.outputs[0], 2)
        if before is None or flat is None or after is None or product is None:
            continue
        if not same(before[2], flat[1]) or not same(after[2], product[1]):
            continue
        if not same(before[0], after[0]) and not same(before[1], after[1]):
            continue
        made = []
        weights = node.inputs[1]
        if integer(node, "transB", 0):
            made.append(ir.Node("", "Transpose", [weights], [ir.AttrInt64s("perm", [1, 0])]))
            set_type(made[-1].outputs[0], node.outputs[0])
            made[-1].outputs[0].shape = ir.Shape([before[2], after[2]])
            weights = made[-1].outputs[0]
        made.append(ir.Node("", "MatMul", [source, weights]))
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            set_type(made[-1].outputs[0], node.outputs[0])
            made[-1].outputs[0].shape = split.outputs[0].shape
            made.append(ir.Node("", "Add", [made[-1].outputs[0], node.inputs[2]]))
        graph.insert_before(node, made)
        replace_value(split.outputs[0], made[-1].outputs[0])
        count += 1
    if count:
        graph.sort()
    return {"linear layer": count} if count else {}


def _is_plain(node: ir.Node) -> bool:
    bias = sizes(node.inputs[2], 1) if len(node.inputs) > 2 and node.inputs[2] else ()
    return (
        number(node, "alpha", 1.0) == 1.0
        and number(node, "beta", 1.0) == 1.0
        and not integer(node, "transA", 0)
        and bias is not None
    )


def split_projections(graph: ir.Graph) -> dict[str, int]:
    """Write queries, keys and values of one product as one Split before heads are put first.

    Cases: a Split of each head after its Transpose; slices of (batch, length, parts, heads, width),
    each without its third axis.  Other fusions look for what lies before the Transpose.  Returns
    how many of which kind.
    """
    found = {"parts of heads": 0, "slices": 0}
    new, wholes = NewNodes(graph), dict[tuple[ir.Value, int], ir.Node]()
    for node in list(graph):
        if is_op(node, "Split"):
            found["parts of heads"] += _split_before_transpose(node, new)
        elif is_op(node, "Squeeze"):
            found["slices"] += _split_for_slice(node, new, wholes)
    if any(found.values()):
        graph.sort()
    return {name: count for name, count in found.items() if count}


def _split_before_transpose(node: ir.Node, new: NewNodes) -> bool:
    turned = made_by(node.inputs[0], "Transpose")
    source = turned.inputs[0] if turned is not None else None
    if turned is None or source is None or permutation(turned) != HEADS_FIRST:
        return False
    # Two parts are what is turned by its position, and what is not.
    if only_user(turned.outputs[0]) is not node or len(node.outputs) < _FEWEST_PARTS:
        return False
    if integer(node, "axis", 0) not in (-1, 3) or any(
        out.is_graph_output() for out in node.outputs
    ):
        return False
    split = new.node(
        "Split",
        [source, *node.inputs[1:]],
        {name: attribute.value for name, attribute in node.attributes.items()},
        len(node.outputs),
    )
    ends = []
    for part, old in zip(split.outputs, node.outputs, strict=True):
        known = sizes(old, 4)
        set_type(part, old)
        if known is not None:
            part.shape = ir.Shape([known[axis] or None for axis in HEADS_FIRST])
        ends.append((old, new.transposed(part, HEADS_FIRST, known)))
    new.place_before(node)
    for old, made in ends:
        replace_value(old, made)
    return True


def _split_for_slice(
    node: ir.Node, new: NewNodes, wholes: dict[tuple[ir.Value, int], ir.Node]
) -> bool:
    part = made_by(node.inputs[0], "Slice")
    joined = made_by(part.inputs[0], "Reshape") if part is not None else None
    flat = joined.inputs[0] if joined is not None else None
    if part is None or joined is None or flat is None:
        return False
    whole, before, after = sizes(joined.outputs[0], 5), sizes(flat, 3), sizes(node.outputs[0], 4)
    taken = part_along(part, 2)
    if whole is None or before is None or after is None or taken is None:
        return False
    batch, length, parts, heads, width = whole
    if not isinstance(parts, int) or not isinstance(heads, int) or not isinstance(width, int):
        return False
    if before[2] != parts * heads * width or not same(before[0], batch):
        return False
    if not all(map(same, after, (batch, length, heads, width))):
        return False
    if (flat, parts) not in wholes:
        side = heads * width
        wholes[flat, parts] = new.split(flat, 2, [side] * parts)
        for output in wholes[flat, parts].outputs:
            set_type(output, flat)
            output.shape = ir.Shape([batch or None, length or None, side])
    own = wholes[flat, parts].outputs[taken[0]]
    made = new.reshaped(own, [0, 0, heads, width], after)
    new.place_before(node)
    replace_value(node.outputs[0], made)
    return True
