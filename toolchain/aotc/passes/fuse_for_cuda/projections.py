"""Products of matrices around which two dims are merged, as products of three dims.

Exporters write a linear layer as Reshape, Gemm, Reshape.  The Reshapes hide from other fusions that
queries, keys and values are made from one input, and that a sum skips the layer.
"""

from __future__ import annotations

import onnx_ir as ir

from aotc.passes.fuse_for_cuda.graph_values import (
    integer,
    is_op,
    made_by,
    number,
    only_user,
    replace_value,
    same,
    set_type,
    sizes,
)


def unflatten_projections(graph: ir.Graph) -> dict[str, int]:
    """Rewrite all; returns how many."""
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
