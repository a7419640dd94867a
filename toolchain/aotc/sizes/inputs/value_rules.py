"""Hints for inputs that are indices, lengths, divisors or ratios, or parameters of images.

A rule takes one use of a value and returns a hint (see `fixtures`), or None if it cannot tell.
Rules follow the operators' specifications: ONNX's, and ONNX Runtime's for `com.microsoft`.  Rules
on shapes and axes are in `shape_rules`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

from aotc.sizes.inputs.flow import Extent, Shape, Use, difference, minimum, product, size_at, total
from aotc.spec.codec import Json

Hint = dict[str, Json]
Rule = Callable[[Use], Hint | None]
# Number of elements of generated sequences.
SEQUENCE_LENGTH: Final = 2
# Enough iterations to show what a loop does.
_MAX_STEPS: Final = 3
# Size of an output axis that is not declared.
DEFAULT_SIZE: Final = 4
# How many block shapes are considered.
_MAX_CANDIDATES: Final = 4096


def index_below(high: Extent | None, low: int = 0) -> Hint | None:
    """Integers from `low` up to but excluding `high`; None if `high` is unknown."""
    if high is None:
        return None
    return {"kind": "index", "high": high} | ({"low": low} if low else {})


def full(value: Extent | None) -> Hint | None:
    """`value` everywhere; None if it is unknown."""
    return None if value is None else {"kind": "full", "value": value}


def vector(values: Sequence[Extent | None]) -> Hint | None:
    """These elements, in order; None if one is unknown."""
    if any(value is None for value in values):
        return None
    return {"kind": "vector", "values": list(values)}


def uniform_between(low: float, high: float) -> Rule:
    """A rule for floats from `low` up to but excluding `high`."""
    return lambda _: {"kind": "uniform", "low": low, "high": high}


def constant(value: Extent) -> Rule:
    """A rule for `value` everywhere."""
    return lambda _: full(value)


def _of_kind(kind: str) -> Rule:
    return lambda _: {"kind": kind}


def _within_axis(
    data: int, axis: str = "axis", default: int = 0, *, distinct: bool = False
) -> Rule:
    """Indices into input `data`, along the axis that the attribute `axis` names."""

    def rule(use: Use) -> Hint | None:
        at = use.attribute(axis, default) if axis else default
        hint = index_below(use.size(data, at))
        return {**hint, "distinct": at} if hint and distinct else hint

    return rule


def _nd_indices(use: Use) -> Hint | None:
    """GatherND, ScatterND: the last axis of the indices holds one index per axis of the data."""
    skipped = use.attribute("batch_dims", 0)
    data, indices = use.shape(0), use.shape(1)
    count = size_at(indices, -1)
    if data is None or not isinstance(count, int):
        return None
    highs = data[skipped : skipped + count]
    if any(high is None for high in highs):
        return None
    hint: Hint = {"kind": "columns", "highs": list(highs)}
    return {**hint, "distinct": True} if use.site.node.op_type == "ScatterND" else hint


def _sequence_lengths(use: Use) -> Hint | None:
    """RNN, GRU, LSTM: lengths of at most the size of the time axis."""
    time = 1 if use.attribute("layout", 0) else 0
    return index_below(total(use.size(0, time), 1), 1)


def _reversed_lengths(use: Use) -> Hint | None:
    return index_below(total(use.size(0, use.attribute("time_axis", 0)), 1), 1)


def _write_positions(use: Use) -> Hint | None:
    """TensorScatter: where the update starts, so that it ends within the cache."""
    axis = use.attribute("axis", -2)
    room = difference(use.size(0, axis), use.size(1, axis))
    return index_below(total(room, 1))


def _valid_key_counts(use: Use) -> Hint | None:
    """Attention of ONNX: how many keys of each batch entry are not padding."""
    keys = use.size(1, 2 if use.rank(1) == 4 else 1)
    return index_below(total(keys, 1), 1)


def _total_length(use: Use) -> Extent | None:
    """GroupQueryAttention: the number of keys of the past and of this call."""
    past = use.size(3, 2) if use.has_input(3) else 0
    return total(past, use.size(0, 1))


def _key_mask(query_axis: int, keys: int) -> Rule:
    """A mask of keys: ones if it has two axes, else the length of all keys."""

    def rule(use: Use) -> Hint | None:
        if use.rank(use.index) == 1 and (maximum := use.size(keys, query_axis)) is not None:
            return full(maximum)
        return {"kind": "ones"}

    return rule


def _rotary_positions(table: int) -> Rule:
    """RotaryEmbedding: positions within the rows of the cosines; a single one is the first."""

    def rule(use: Use) -> Hint | None:
        if use.rank(use.index) == 1 and use.length() == 1:
            return full(0)
        return index_below(use.size(table, 0))

    return rule


def _unpool_indices(use: Use) -> Hint | None:
    """MaxUnpool: positions in the output, which has at least as many elements as the input."""
    shape: Shape | None = use.shape(0)
    return index_below(product(*shape)) if shape is not None else None


def _stft_frame(use: Use) -> Hint | None:
    """STFT: a frame is at most as long as the signal, and a step at most as long as a frame."""
    signal = use.size(0, 1)
    if use.index == 1:
        return full(minimum(4, signal))
    window = use.size(2, 0) if use.has_input(2) else None
    return full(window if window is not None else minimum(16, signal))


def for_inputs(rule: Rule, *indices: int) -> dict[int, Rule]:
    """One rule for several inputs, by their index."""
    return dict.fromkeys(indices, rule)


_ONE: Final = constant(1)
_ZERO: Final = constant(0)
# Boxes have their corners in order; MaxRoiPool has the index of the image in front.
_BOXES: Final = _of_kind("boxes")
_DIVISOR: Final = _of_kind("divisor")
_POSITIVE: Final = _of_kind("positive")
_ZERO_POINT: Final = _of_kind("zero_point")
_DISTINCT_ROWS: Final = _within_axis(0, distinct=True)
# By operator and input index; an operator of `com.microsoft` without rules of its own has
# those of the ONNX operator of the same name.
VALUE_RULES: Final[dict[str, dict[int, Rule]]] = {
    # Indices.
    "Gather": {1: _within_axis(0)},
    "GatherElements": {1: _within_axis(0)},
    "GatherND": {1: _nd_indices},
    "GatherBlockQuantized": {1: _within_axis(0, "gather_axis")},
    "ScatterElements": {1: _DISTINCT_ROWS},
    "Scatter": {1: _DISTINCT_ROWS},
    "ScatterND": {1: _nd_indices},
    "TensorScatter": {2: _write_positions},
    "ArrayFeatureExtractor": {1: _within_axis(0, "", -1)},
    "NegativeLogLikelihoodLoss": {1: _within_axis(0, "", 1)},
    "SoftmaxCrossEntropyLoss": {1: _within_axis(0, "", 1)},
    "MaxUnpool": {1: _unpool_indices},
    "RoiAlign": {1: _BOXES, 2: _within_axis(0, "")},
    "MaxRoiPool": {1: _BOXES},
    "EmbedLayerNormalization": {
        0: _within_axis(2, ""), 1: _within_axis(4, ""), 7: _ONE, 8: _within_axis(3, ""),
    },
    "RotaryEmbedding": {3: _rotary_positions(1)},
    "com.microsoft.RotaryEmbedding": {1: _rotary_positions(2)},
    "SequenceAt": {1: _ZERO},
    "SequenceErase": {1: _ZERO},
    "SequenceInsert": {2: _ZERO},
    # Lengths and counts.
    **{name: {4: _sequence_lengths} for name in ("RNN", "GRU", "LSTM")},
    "ReverseSequence": {1: _reversed_lengths},
    "Attention": {6: _valid_key_counts},
    "com.microsoft.Attention": {3: _key_mask(1, 0)},
    "GroupQueryAttention": {
        5: lambda use: full(total(_total_length(use), -1)),
        6: lambda use: full(_total_length(use)),
    },
    "MultiHeadAttention": {4: _key_mask(1, 1)},
    "STFT": {1: _stft_frame, 3: _stft_frame},
    "BlackmanWindow": {0: lambda _: index_below(17, 8)},
    "HannWindow": {0: lambda _: index_below(17, 8)},
    "HammingWindow": {0: lambda _: index_below(17, 8)},
    "MelWeightMatrix": {
        **{0: constant(8), 1: constant(64), 2: constant(8000)},
        3: uniform_between(0.0, 100.0),
        4: uniform_between(3000.0, 4000.0),
    },
    "NonMaxSuppression": {
        2: lambda _: index_below(_MAX_STEPS + 1, 1),
        3: uniform_between(0.3, 0.7),
        4: uniform_between(0.0, 0.1),
    },
    "Loop": {0: lambda _: index_below(_MAX_STEPS, 1), 1: _ONE},
    # Divisors, scales and probabilities.
    "Div": {1: _DIVISOR},
    "Mod": {1: _DIVISOR},
    "BitShift": {1: lambda _: index_below(8)},
    "QuantizeLinear": {1: _POSITIVE, 2: _ZERO_POINT},
    "DequantizeLinear": {1: _POSITIVE, 2: _ZERO_POINT},
    "QLinearConv": for_inputs(_POSITIVE, 1, 4, 6),
    "QLinearMatMul": for_inputs(_POSITIVE, 1, 4, 6),
    "QGemm": for_inputs(_POSITIVE, 1, 4, 7),
    "MatMulNBits": {2: _POSITIVE},
    "BatchNormalization": {4: _POSITIVE},
    "Dropout": {1: uniform_between(0.0, 0.5), 2: _ZERO},
    "Bernoulli": {0: uniform_between(0.0, 1.0)},
    "BeamSearch": {
        **{1: lambda use: full(total(use.size(0, 1), 4)), 2: _ONE, 3: constant(2), 4: _ONE},
        **for_inputs(_ONE, 5, 6),
    },
    "GreedySearch": {1: lambda use: full(total(use.size(0, 1), 4)), 2: _ONE, 3: _ONE},
}  # fmt: skip


# Hints for inputs of image operators that are sizes, scales and regions.
#
# If the shape of the node's output is declared, the hint is a value that produces it.


def _resize_axes(use: Use) -> list[int] | None:
    axes = use.attribute("axes")
    rank = use.rank(0)
    if axes is not None:
        return [axis % rank if rank else axis for axis in axes]
    return None if rank is None else list(range(rank))


def _resize_scales(use: Use) -> Hint | None:
    """Resize and Upsample: declared output size by data size; else batch and channels are kept."""
    if use.length() == 0:
        return None
    axes = _resize_axes(use)
    if axes is None:
        return full(1)
    data, output_shape = use.shape(0), use.output_shape()
    scales: list[float] = []
    for axis in axes:
        size, wanted = size_at(data, axis), size_at(output_shape, axis)
        if isinstance(size, int) and isinstance(wanted, int) and size:
            scales.append(_ratio(size, wanted))
        else:
            scales.append(1.0 if axis < 2 else 2.0)
    return {"kind": "vector", "values": scales}


def _ratio(size: int, wanted: int) -> float:
    """A scale that turns `size` into `wanted` when the product is rounded down.

    Slightly above the quotient, as rounding it to float32 could lose one element.
    """
    return wanted / size if wanted % size == 0 else (wanted + 0.25) / size


def _resize_sizes(use: Use) -> Hint | None:
    if use.length() == 0:
        return None
    axes = _resize_axes(use)
    data, output_shape = use.shape(0), use.output_shape()
    if axes is None:
        return None
    wanted = [size_at(output_shape, axis) for axis in axes]
    own = [size_at(data, axis) for axis in axes]
    return vector(
        [
            one if one is not None else (other if other is not None else DEFAULT_SIZE)
            for one, other in zip(wanted, own, strict=True)
        ]
    )


def _resize_region(use: Use) -> Hint | None:
    """Resize: the whole data, relative to its sizes; up to opset 10 this input holds the scales."""
    if not use.has_input(2) and not use.has_input(3):
        return _resize_scales(use)
    axes = _resize_axes(use)
    if axes is None or use.length() == 0:
        return None
    return vector([*[0] * len(axes), *[1] * len(axes)])


def _affine_grid_size(use: Use) -> Hint | None:
    """AffineGrid: the batch of theta, one channel, and the declared image."""
    output_shape = use.output_shape()
    count = use.length() or (len(output_shape) + 1 if output_shape else 4)
    image = list(output_shape[1:-1]) if output_shape is not None else [DEFAULT_SIZE] * (count - 2)
    return vector([use.size(0, 0), 1, *(DEFAULT_SIZE if size is None else size for size in image)])


def _unpool_shape(use: Use) -> Hint | None:
    output_shape = use.output_shape()
    if output_shape is not None and None not in output_shape:
        return vector(output_shape)
    strides = use.attribute("strides") or [1] * len(use.attribute("kernel_shape", []))
    data = use.shape(0)
    if data is None:
        return None
    return vector(
        [*data[:2], *(product(size, step) for size, step in zip(data[2:], strides, strict=False))]
    )


def _col2im_size(use: Use) -> Hint | None:
    """Col2Im: an image and a block that fit as often as the input has columns."""
    output_shape, columns, rank = use.output_shape(), use.shape(0), use.length(1) or use.length(2)
    if columns is None or not rank:
        return None
    image = list(output_shape[2:]) if output_shape is not None else [None] * rank
    channels = output_shape[1] if output_shape is not None else None
    for block in _block_shapes(columns[1], channels, rank):
        sizes = [
            use.constant(1)[at] if use.constant(1) else image[at]  # type: ignore[index]
            for at in range(rank)
        ]
        positions = [_position_count(use, at, block[at], sizes[at]) for at in range(rank)]
        if None in sizes:
            sizes = [_covering_size(use, at, block[at], columns[2], at == 0) for at in range(rank)]
        elif isinstance(columns[2], int) and math.prod(positions) != columns[2]:
            continue
        return vector(sizes if use.index == 1 else block)
    return None


def _block_shapes(rows: Extent | None, channels: Extent | None, rank: int) -> list[tuple[int, ...]]:
    """Blocks with as many elements as there are rows for each channel; squares first."""
    if not isinstance(rows, int):
        return [(1,) * rank]
    elements = rows // channels if isinstance(channels, int) and channels else rows
    divisors = [size for size in range(1, min(elements, 64) + 1) if elements % size == 0]
    candidates = itertools.islice(itertools.product(divisors, repeat=rank), _MAX_CANDIDATES)
    return sorted(
        (candidate for candidate in candidates if math.prod(candidate) == elements),
        key=lambda candidate: (max(candidate) - min(candidate), candidate),
    )


def _position_count(use: Use, axis: int, block: int, size: Extent | None) -> int:
    """The number of positions of a block along one axis of the image."""
    if not isinstance(size, int):
        return 0
    step, extent = _step_and_extent(use, axis, block)
    return int((size - extent) // step + 1)


def _covering_size(
    use: Use, axis: int, block: int, positions: Extent | None, first: bool
) -> Extent | None:
    """A size of the image with all positions along its first axis, and one along the others."""
    step, extent = _step_and_extent(use, axis, block)
    moved = product(step, difference(positions, 1)) if first else 0
    return total(extent, moved)


def _step_and_extent(use: Use, axis: int, block: int) -> tuple[int, int]:
    """The step between positions, and what a block takes of the image beside the padding."""
    rank = use.length(1) or use.length(2) or 0
    step = (use.attribute("strides") or [1] * rank)[axis]
    extent = (use.attribute("dilations") or [1] * rank)[axis] * (block - 1) + 1
    pads = use.attribute("pads") or [0] * 2 * rank
    return step, extent - pads[axis] - pads[axis + rank]


# By operator and input index.
IMAGE_RULES: Final[dict[str, dict[int, Rule]]] = {
    "Resize": {1: _resize_region, 2: _resize_scales, 3: _resize_sizes},
    "Upsample": {1: _resize_scales},
    "AffineGrid": {1: _affine_grid_size},
    "MaxUnpool": {2: _unpool_shape},
    "Col2Im": for_inputs(_col2im_size, 1, 2),
}
