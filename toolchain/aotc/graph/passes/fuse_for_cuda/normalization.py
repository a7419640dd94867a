"""Normalizations, with the sum before them where another layer reads it too.

Those with a bias and of root mean squares are onnxscript's rules, which find them in half precision
as well.  Ours: the standard RMSNormalization (opset 23), LayerNormalization without a bias, and a
layer's own bias that is added before its result gets another shape.
"""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter.ort_fusions.rms_normalization import fuse_rms_normalization
from onnxscript.rewriter.ort_fusions.skip_normalization import (
    fuse_skip_layer_normalization,
    fuse_skip_rms_normalization,
)

from aotc.graph.passes.fuse_for_cuda.graph_values import (
    integer,
    is_constant,
    is_op,
    made_by,
    number,
    only_user,
    replace_value,
    same,
    set_type,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes
from aotc.spec.providers import MICROSOFT

_EPSILON = 1e-5


def fuse_normalizations(model: ir.Model) -> dict[str, int]:
    """Fuse them; returns how many of which kind."""
    _move_biases_behind_reshapes(model.graph)
    found = {
        "rms": fuse_rms_normalization(model) + _standard_rms(model.graph),
        "skip layer": fuse_skip_layer_normalization(model) + _skip_without_bias(model.graph),
        "skip rms": fuse_skip_rms_normalization(model),
    }
    return {name: count for name, count in found.items() if count}


def _move_biases_behind_reshapes(graph: ir.Graph) -> None:
    """Add biases of layers that are skipped after the Reshape behind them, where the rules look.

    So they are of layers of images as rows, (batch, height, width, channels).
    """
    new = NewNodes(graph)
    for node in list(graph):
        added = made_by(node.inputs[0], "Add") if is_op(node, "Reshape") else None
        if added is None or only_user(added.outputs[0]) is not node:
            continue
        skipped, (source, bias) = only_user(node.outputs[0]), added.inputs
        if is_constant(source):
            source, bias = bias, source
        if source is None or source.shape is None or not is_constant(bias):
            continue
        if skipped is None or not is_op(skipped, "Add") or not _is_normalized(skipped.outputs[0]):
            continue
        before, after = sizes(source, len(source.shape)), sizes(node.outputs[0], 3)
        if not before or after is None or before[-1] != after[-1]:
            continue
        if sizes(bias, 1) != after[-1:]:
            continue
        moved = new.alike(node, [source, *node.inputs[1:]])
        moved.shape = node.outputs[0].shape
        result = new.node("Add", [moved, bias]).outputs[0]
        set_type(result, node.outputs[0])
        result.shape = node.outputs[0].shape
        new.place_before(node)
        replace_value(node.outputs[0], result)


def _is_normalized(value: ir.Value) -> bool:
    return any(is_op(use.node, "LayerNormalization") and not use.idx for use in value.uses())


def _standard_rms(graph: ir.Graph) -> int:
    """Write RMSNormalization as ONNX Runtime's own, which the next rules know."""
    count = 0
    for node in graph:
        if is_op(node, "RMSNormalization") and _is_of_rows(node):
            node.op_type = "SimplifiedLayerNormalization"
            node.attributes.add(ir.AttrInt64("axis", -1))
            count += 1
    return count


def _is_of_rows(node: ir.Node) -> bool:
    """Whether it is of the last axis, computed in float32."""
    return integer(node, "axis", -1) == -1 and integer(node, "stash_type", 1) == 1


def _skip_without_bias(graph: ir.Graph) -> int:
    """Fuse each LayerNormalization without a bias with the sum of two values before it."""
    count, new = 0, NewNodes(graph)
    for node in list(graph):
        source, scale, bias = (*node.inputs, None, None, None)[:3]
        total = made_by(source, "Add")
        if not is_op(node, "LayerNormalization") or bias is not None or total is None:
            continue
        known = [sizes(value, 3) for value in total.inputs]
        # The operator broadcasts neither.
        if known[0] is None or known[1] is None or not all(map(same, known[0], known[1])):
            continue
        if not _is_of_rows(node) or len(node.outputs) > 1 or sizes(scale, 1) != (known[0][2],):
            continue
        assert source is not None
        read = len(source.uses()) > 1 or source.is_graph_output()
        fused = new.node(
            "SkipLayerNormalization",
            [*total.inputs, scale],
            {"epsilon": number(node, "epsilon", _EPSILON)},
            # The last is the sum; no kernel writes the two before it.
            4 if read else 1,
            domain=MICROSOFT,
        )
        new.place_before(node)
        ends = [(node.outputs[0], fused.outputs[0]), (source, fused.outputs[-1])]
        for old, made in ends if read else ends[:1]:
            set_type(made, old)
            replace_value(old, made)
        count += 1
    if count:
        graph.sort()
    return count
