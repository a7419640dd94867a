"""Transposes of keys whose batch and heads are merged meanwhile, as transposes of four dims.

Exporters of scaled dot-product attention write Reshape, Transpose, Reshape.  If all sizes are
known, what was before the first Reshape, as keys that are repeated for groups of queries, may be
merged into it, so that no value of (batch, heads, length, width) is left.
"""

from __future__ import annotations

import onnx_ir as ir

from aotc.passes.fuse_for_cuda.graph_values import (
    is_op,
    made_by,
    permutation,
    replace_value,
    same,
    set_type,
    sizes,
)

_MERGED = (0, 2, 1)
_SWAPPED = (0, 1, 3, 2)


def split_key_transposes(graph: ir.Graph) -> dict[str, int]:
    """Rewrite all; returns how many."""
    count = 0
    for outer in list(graph):
        middle = made_by(outer.inputs[0], "Transpose") if is_op(outer, "Reshape") else None
        inner = made_by(middle.inputs[0], "Reshape") if middle is not None else None
        if inner is None or permutation(middle) != _MERGED:
            continue
        merged, after = sizes(inner.outputs[0], 3), sizes(outer.outputs[0], 4)
        if merged is None or after is None:
            continue
        if not same(merged[1], after[3]) or not same(merged[2], after[2]):
            continue
        made: list[ir.Node] = []
        keys = _split(inner.inputs[0], (after[0], after[1], after[3], after[2]), made)
        if keys is None:
            continue
        made.append(ir.Node("", "Transpose", [keys], [ir.AttrInt64s("perm", _SWAPPED)]))
        set_type(made[-1].outputs[0], outer.outputs[0])
        graph.insert_before(outer, made)
        replace_value(outer.outputs[0], made[-1].outputs[0])
        count += 1
    return {"keys": count} if count else {}


def _split(
    value: ir.Value | None, wanted: tuple[int | str, ...], made: list[ir.Node]
) -> ir.Value | None:
    """The value if it is of these sizes, else a Reshape of it; None if more than one is unknown."""
    before = sizes(value, 4)
    # The batch follows.
    if before is not None and all(same(before[axis], wanted[axis]) for axis in (1, 2, 3)):
        return value
    free = [axis for axis, size in enumerate(wanted) if not isinstance(size, int)]
    if len(free) > 1 or 0 in wanted:
        return None
    numbers = [size if isinstance(size, int) else -1 for size in wanted]
    shape = ir.Node(
        "", "Constant", [], [ir.AttrTensor("value", ir.tensor(numbers, dtype=ir.DataType.INT64))]
    )
    made += [shape, ir.Node("", "Reshape", [value, shape.outputs[0]])]
    result = made[-1].outputs[0]
    result.shape = ir.Shape([size or None for size in wanted])
    if value is not None:
        set_type(result, value)
    return result
