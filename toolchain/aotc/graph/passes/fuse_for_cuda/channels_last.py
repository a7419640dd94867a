"""Images as rows of pixels, with their channels moved last before the pixels are one axis.

Encoders write images (batch, channels, height, width) as rows by a Reshape that merges height and
width, then a Transpose of three axes; and back by a Transpose, then a Reshape.  Where convolutions
run with channels last, ONNX Runtime puts a Transpose of four axes before and after each, and moves
these through what is elementwise, but through no such Reshape: both stay.  Written as a Transpose
of four axes beside the image, and a Reshape beside the rows, they cancel.  Where channels come
first, as many elements are moved as before: CUDA's Transpose merges height and width itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from aotc.graph.passes.fuse_for_cuda.graph_values import (
    array,
    integer,
    is_op,
    made_by,
    only_user,
    permutation,
    replace_value,
    same,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes

_SWAPPED: Final = (0, 2, 1)
_TO_LAST: Final = (0, 2, 3, 1)
_TO_FIRST: Final = (0, 3, 1, 2)


def move_transposes_to_images(graph: ir.Graph) -> dict[str, int]:
    """Write both kinds so, in a graph with convolutions; returns how many of each."""
    if not any(is_op(node, "Conv") for node in graph):
        return {}
    found, new = {"to rows": 0, "to images": 0}, NewNodes(graph)
    for node in list(graph):
        if is_op(node, "Transpose") and permutation(node) == _SWAPPED:
            found["to rows"] += _to_rows(node, new)
        elif is_op(node, "Reshape"):
            found["to images"] += _to_image(node, new)
    return {name: count for name, count in found.items() if count}


def _to_rows(transpose: ir.Node, new: NewNodes) -> bool:
    merge = made_by(transpose.inputs[0], "Reshape")
    if merge is None or only_user(merge.outputs[0]) is not transpose:
        return False
    image, merged = merge.inputs[0], sizes(merge.outputs[0], 3)
    before = sizes(image, 4)
    if image is None or before is None or merged is None or not _keep(before, merged):
        return False
    if not _may_be_turned(merge, merged):
        return False
    last = new.transposed(image, _TO_LAST, [before[axis] for axis in _TO_LAST])
    made = _reshaped(last, merge, merged, _SWAPPED, new)
    new.place_before(transpose)
    replace_value(transpose.outputs[0], made)
    return True


def _to_image(split: ir.Node, new: NewNodes) -> bool:
    transpose = made_by(split.inputs[0], "Transpose")
    if transpose is None or permutation(transpose) != _SWAPPED:
        return False
    after, merged = sizes(split.outputs[0], 4), sizes(transpose.outputs[0], 3)
    rows = transpose.inputs[0]
    if after is None or merged is None or rows is None or not _keep(after, merged):
        return False
    if not _may_be_turned(split, after):
        return False
    made = new.transposed(_reshaped(rows, split, after, _TO_LAST, new), _TO_FIRST, after)
    new.place_before(split)
    replace_value(split.outputs[0], made)
    return True


def _keep(image: tuple[int | str, ...], merged: tuple[int | str, ...]) -> bool:
    """Whether batch and channels are the same in both, so that the rest is merged in order.

    A batch that an exporter wrote as -1 has no name; it is what is left by all other sizes.
    """
    batch, channels, height, width = image
    if not same(channels, merged[1]):
        return False
    if same(batch, merged[0]):
        return True
    if isinstance(channels, int) and isinstance(height, int) and isinstance(width, int):
        return merged[2] == height * width and channels * height * width > 0
    return False


def _may_be_turned(reshape: ir.Node, result: tuple[int | str, ...]) -> bool:
    """Whether the sizes that a Reshape states mean the same in another order.

    A 0 does not: it keeps the size that stands in its place, unless it is the batch's.
    """
    if (stated := _stated(reshape, result)) is not None:
        return 0 not in stated[1:]
    if integer(reshape, "allowzero", 0):
        return True
    joined = made_by(reshape.inputs[1], "Concat")
    return joined is not None and not any(map(_holds_zero, joined.inputs))


def _holds_zero(value: ir.Value | None) -> bool:
    known = array(value)
    return isinstance(known, np.ndarray) and 0 in known


def _stated(reshape: ir.Node, result: tuple[int | str, ...]) -> list[int] | None:
    """The sizes that a Reshape states, those that are known by number; None if it computes any."""
    found = array(reshape.inputs[1])
    if all(isinstance(size, int) for size in result[1:]):
        found = np.zeros(len(result), np.int64)
    if not isinstance(found, np.ndarray):
        return None
    known = [
        size if isinstance(size, int) else int(n) for size, n in zip(result, found, strict=True)
    ]
    return [0, *known[1:]]


def _reshaped(
    value: ir.Value,
    reshape: ir.Node,
    result: tuple[int | str, ...],
    order: tuple[int, ...],
    new: NewNodes,
) -> ir.Value:
    """`value` in the sizes that `reshape` makes, which are `result`, in another order."""
    stated, turned = _stated(reshape, result), [result[axis] for axis in order]
    if stated is not None:
        return new.reshaped(value, [stated[axis] for axis in order], turned)
    shape = new.node("Gather", [reshape.inputs[1], new.numbers([*order])]).outputs[0]
    made = new.alike(reshape, [value, shape])
    made.shape = ir.Shape([size or None if size != 0 else 0 for size in turned])
    return made
