"""Hints for inputs that are shapes, axes, ranges or counts, element by element.

If the shape of the node's output is declared, the hint is a value that produces it; else one with
which most models run: the data keeps its shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from aotc.sizes.inputs.flow import Extent, Shape, Use, minimum, product, size_at
from aotc.sizes.inputs.value_rules import (
    DEFAULT_SIZE,
    Hint,
    Rule,
    constant,
    for_inputs,
    full,
    vector,
)

# Beyond the end of any axis, in either direction.
_BEYOND_END: Final = 1 << 30
# How many choices of axes are considered.
_MAX_CANDIDATES: Final = 4096
_REDUCTIONS: Final = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def _reshape_shape(use: Use) -> Hint | None:
    """Reshape: the declared shape, with -1 for one unknown size; else the shape of the data."""
    data, output_shape, count = use.shape(0), use.output_shape(), use.length()
    if (
        output_shape is not None
        and count in (None, len(output_shape))
        and _says_more_than_rank(output_shape)
    ):
        shape = list(output_shape)
        if None in shape:
            shape[shape.index(None)] = -1
        return vector([1 if size is None else size for size in shape])
    if count is None:
        return vector(data) if data else None
    if data is None or None in data:
        return vector([*[1] * (count - 1), -1]) if count else None
    if count < len(data):
        rest = data[max(count - 1, 0) :]
        return vector([*data[: count - 1], product(*rest)]) if count else None
    return vector([*data, *[1] * (count - len(data))])


def _says_more_than_rank(output_shape: Shape) -> bool:
    """Whether a declared shape has at least one known size, or a rank below two."""
    return len(output_shape) < 2 or any(size is not None for size in output_shape)


def _expand_shape(use: Use) -> Hint | None:
    data, output_shape, count = use.shape(0), use.output_shape(), use.length()
    if count is None:
        count = len(output_shape or data or ())
    own = _aligned(data, count)
    if output_shape is None:
        return vector([1 if size is None else size for size in own]) if data is not None else None
    return vector(
        [
            wanted if wanted is not None else (1 if size is None else size)
            for wanted, size in zip(_aligned(output_shape, count), own, strict=True)
        ]
    )


def _aligned(shape: Shape | None, count: int) -> list[Extent | None]:
    """The last `count` sizes, preceded by ones if there are fewer."""
    known = list(shape or ())[max(0, len(shape or ()) - count) :]
    return [*[1] * (count - len(known)), *known]


def _tile_repeats(use: Use) -> Hint | None:
    data, output_shape = use.shape(0), use.output_shape()
    if data is None or output_shape is None or len(data) != len(output_shape):
        return None
    pairs = list(zip(data, output_shape, strict=True))
    if any(size is None for pair in pairs for size in pair):
        return None
    return vector([_repeats(size, wanted) for size, wanted in pairs])


def _repeats(size: Extent, wanted: Extent) -> Extent:
    if isinstance(size, int) and isinstance(wanted, int) and size:
        return wanted // size
    return 1


def _declared_shape(use: Use) -> Hint | None:
    """The declared shape of the output."""
    output_shape = use.output_shape()
    return vector(output_shape) if output_shape is not None else None


def _reduced_axes(use: Use) -> Hint | None:
    """Axes that the declared output lacks or has as ones; else the last ones."""
    data, output_shape, count = use.shape(0), use.output_shape(), use.length()
    count = 1 if count is None else count
    found = None
    if data is not None and output_shape is not None and _says_more_than_rank(output_shape):
        kept = bool(use.attribute("keepdims", 1))
        found = _likeliest(
            {
                axes: [
                    1 if axis in axes else size
                    for axis, size in enumerate(data)
                    if kept or axis not in axes
                ]
                for axes in _axis_choices(len(data), count)
            },
            output_shape,
        )
    return vector([-1 - axis for axis in range(count)] if found is None else found)


def _squeezed_axes(use: Use) -> Hint | None:
    """Axes of size 1 that the declared output lacks."""
    data, output_shape, count = use.shape(0), use.output_shape(), use.length()
    if data is None:
        return vector([0]) if count in (None, 1) else None
    count = sum(size == 1 for size in data) if count is None else count
    candidates = {
        axes: [size for axis, size in enumerate(data) if axis not in axes]
        for axes in _axis_choices(len(data), count)
        if all(data[axis] in (1, None) for axis in axes)
    }
    found = _likeliest(candidates, output_shape) if output_shape is not None else None
    return vector(next(iter(candidates), range(count)) if found is None else found)


def _unsqueezed_axes(use: Use) -> Hint | None:
    data, output_shape, count = use.shape(0), use.output_shape(), use.length()
    count = 1 if count is None else count
    found = None
    if data is not None and output_shape is not None and len(output_shape) == len(data) + count:
        found = _likeliest(
            {
                axes: [size for axis, size in enumerate(output_shape) if axis not in axes]
                for axes in _axis_choices(len(output_shape), count)
                if all(output_shape[axis] in (1, None) for axis in axes)
            },
            data,
        )
    return vector(range(count) if found is None else found)


def _likeliest(
    candidates: Mapping[tuple[int, ...], Sequence[Extent | None]], wanted: Shape
) -> tuple[int, ...] | None:
    """The axes whose shape is most like the wanted one, of those that may be equal to it."""
    fitting = [axes for axes, shape in candidates.items() if _may_be_equal(shape, wanted)]
    return max(
        fitting,
        key=lambda axes: sum(a == b for a, b in zip(candidates[axes], wanted, strict=True)),
        default=None,
    )


def _axis_choices(rank: int, count: int) -> list[tuple[int, ...]]:
    return list(itertools.islice(itertools.combinations(range(rank), count), _MAX_CANDIDATES))


def _may_be_equal(one: Sequence[Extent | None], other: Sequence[Extent | None]) -> bool:
    """Whether two shapes may be equal: an unknown size, or one of an input, may be any."""
    return len(one) == len(other) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int))
        for a, b in zip(one, other, strict=True)
    )


def _slice_values(use: Use) -> Hint | None:
    """Slice: from the start (backwards: the end) as much as is declared, else everything."""
    count = next((n for n in (use.length(i) for i in (use.index, 1, 2, 3, 4)) if n), None)
    if count is None:
        count = 1 if use.rank(0) is None else use.rank(0)
    data, output_shape = use.shape(0), use.output_shape()
    axes = use.constant(3) if use.has_input(3) else None
    if axes is None:
        axes = (
            _differing_axes(data, output_shape, count or 0)
            if use.has_input(3)
            else list(range(count or 0))
        )
    steps = use.constant(4) or [1] * len(axes)
    if use.index == 3:
        return vector(axes)
    if use.index == 4:
        return vector(steps)
    starts = use.constant(1) or [0 if step > 0 else -1 for step in steps]
    if use.index == 1:
        return vector(starts)
    return vector(
        [
            _slice_end(start, step, size_at(data, axis), size_at(output_shape, axis))
            for start, step, axis in zip(starts, steps, axes, strict=False)
        ]
    )


def _differing_axes(data: Shape | None, output_shape: Shape | None, count: int) -> list[int]:
    """The first `count` axes, preferring those that differ in the declared output."""
    if data is None or output_shape is None or len(data) != len(output_shape):
        return list(range(count))
    order = sorted(range(len(data)), key=lambda axis: (data[axis] == output_shape[axis], axis))
    return sorted(order[:count])


def _slice_end(start: int, step: int, size: Extent | None, wanted: Extent | None) -> Extent:
    if step < 0:
        return -_BEYOND_END
    if isinstance(wanted, int) and isinstance(size, int) and start >= 0:
        return min(start + wanted * step, size)
    return _BEYOND_END if size is None else size


def _pad_values(use: Use) -> Hint | None:
    """Pad: what the declared output has in addition to the data, half of it in front.

    Else one element of padding on each side, or none where it is taken from the data.
    """
    data, output_shape = use.shape(0), use.output_shape()
    axes = _padded_axes(use, data, output_shape)
    if axes is None or use.index == 3:
        return vector(axes) if axes is not None else None
    unknown = 1 if use.attribute("mode", "constant") == "constant" else 0
    pads = []
    for axis in axes:
        size, wanted = size_at(data, axis), size_at(output_shape, axis)
        both = 2 * unknown
        if isinstance(size, int) and isinstance(wanted, int):
            both = wanted - size
        pads.append((both // 2, both - both // 2))
    return vector([pad for side in (0, 1) for pad in (pair[side] for pair in pads)])


def _padded_axes(use: Use, data: Shape | None, output_shape: Shape | None) -> list[int] | None:
    if (axes := use.constant(3)) is not None:
        return axes
    count = use.length(3) if use.has_input(3) else use.rank(0)
    if count is None and (pads := use.length(1)) is not None:
        count = pads // 2
    if count is None:
        return None
    return _differing_axes(data, output_shape, count) if use.has_input(3) else list(range(count))


def _split_sizes(use: Use) -> Hint | None:
    axis = use.attribute("axis", 0)
    shapes = [use.output_shape(index) for index in range(len(use.site.outputs))]
    sizes = [size_at(shape, axis) for shape in shapes]
    if use.site.node.op_type == "Split" and None not in sizes and use.length() == len(sizes):
        return vector(sizes)
    size = use.size(0, axis)
    if use.rank(use.index) == 0:
        return full(minimum(2, size))
    return None if size is None else {"kind": "split", "total": size}


def _range_values(use: Use) -> Hint | None:
    """Range: from 0 in steps of 1, with the declared number of elements."""
    count = size_at(use.output_shape(), 0)
    limit = DEFAULT_SIZE if count is None else count
    return full((0, limit, 1)[use.index])


def _topk_count(use: Use) -> Hint | None:
    """TopK: the declared count, else 2, and never more than the axis has."""
    axis = use.attribute("axis", -1)
    wanted = size_at(use.output_shape(), axis)
    return full(wanted if wanted is not None else minimum(2, use.size(0, axis)))


def _one_hot_depth(use: Use) -> Hint | None:
    wanted = size_at(use.output_shape(), use.attribute("axis", -1))
    return full(wanted if wanted is not None else DEFAULT_SIZE)


def _dft_length(use: Use) -> Hint | None:
    """DFT: the length of the signal; the axis is the last before real and imaginary parts."""
    if use.index == 2:
        return _dft_axis(use)
    axis = use.constant(2)
    at = axis[0] if axis else use.attribute("axis", -2)
    return full(use.size(0, at))


def _dft_axis(use: Use) -> Hint | None:
    """An axis along which the declared output may differ from the data."""
    data, output_shape = use.shape(0), use.output_shape()
    if data is None or output_shape is None or len(data) != len(output_shape):
        return full(-2)
    differing = [
        axis
        for axis in range(len(data) - 1)
        if not _may_be_equal(data[axis : axis + 1], [output_shape[axis]])
    ]
    return full(differing[0] if len(differing) == 1 else -2)


def _cropped_sizes(use: Use) -> Hint | None:
    rank = use.rank(0)
    axes = use.attribute("axes") or (range(rank) if rank is not None else ())
    output_shape, data = use.output_shape(), use.shape(0)
    sizes = [(size_at(output_shape, axis), size_at(data, axis)) for axis in axes]
    return vector([own if wanted is None else wanted for wanted, own in sizes]) if sizes else None


# By operator and input index.
SHAPE_RULES: Final[dict[str, dict[int, Rule]]] = {
    "Reshape": {1: _reshape_shape},
    "Expand": {1: _expand_shape},
    "Tile": {1: _tile_repeats},
    "ConstantOfShape": {0: _declared_shape},
    **{name: {1: _reduced_axes} for name in _REDUCTIONS},
    "Squeeze": {1: _squeezed_axes},
    "Unsqueeze": {1: _unsqueezed_axes},
    # An axis that every tensor of rank one or more has.
    "CumSum": {1: constant(0)},
    "CumProd": {1: constant(0)},
    "Slice": for_inputs(_slice_values, 1, 2, 3, 4),
    "Pad": for_inputs(_pad_values, 1, 3),
    "Split": {1: _split_sizes},
    "SplitToSequence": {1: _split_sizes},
    "Range": for_inputs(_range_values, 0, 1, 2),
    "TopK": {1: _topk_count},
    "OneHot": {1: _one_hot_depth},
    "DFT": for_inputs(_dft_length, 1, 2),
    "CenterCropPad": {1: _cropped_sizes},
}
