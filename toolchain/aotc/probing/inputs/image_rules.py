"""Hints for inputs of image operators that are sizes, scales and regions.

If the shape of the node's output is declared, the hint is a value that produces it.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from aotc.probing.inputs.extents import Extent, difference, product, total
from aotc.probing.inputs.value_flow import Use, size_at
from aotc.probing.inputs.value_rules import Hint, Rule, full, vector

# Size of an output axis that is not declared.
_DEFAULT_SIZE: Final = 4
# How many block shapes are considered.
_MAX_CANDIDATES: Final = 4096


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
            one if one is not None else (other if other is not None else _DEFAULT_SIZE)
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
    image = list(output_shape[1:-1]) if output_shape is not None else [_DEFAULT_SIZE] * (count - 2)
    return vector([use.size(0, 0), 1, *(_DEFAULT_SIZE if size is None else size for size in image)])


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
    rank = use.length(1) or use.length(2) or 0
    step = (use.attribute("strides") or [1] * rank)[axis]
    extent = (use.attribute("dilations") or [1] * rank)[axis] * (block - 1) + 1
    pads = use.attribute("pads") or [0] * 2 * rank
    return int((size + pads[axis] + pads[axis + rank] - extent) // step + 1)


def _covering_size(
    use: Use, axis: int, block: int, positions: Extent | None, first: bool
) -> Extent | None:
    """A size of the image with all positions along its first axis, and one along the others."""
    rank = use.length(1) or use.length(2) or 0
    step = (use.attribute("strides") or [1] * rank)[axis]
    extent = (use.attribute("dilations") or [1] * rank)[axis] * (block - 1) + 1
    pads = use.attribute("pads") or [0] * 2 * rank
    moved = product(step, difference(positions, 1)) if first else 0
    return total(extent, moved, -pads[axis] - pads[axis + rank])


def _for_inputs(rule: Rule, *indices: int) -> dict[int, Rule]:
    return dict.fromkeys(indices, rule)


# By operator and input index.
IMAGE_RULES: Final[dict[str, dict[int, Rule]]] = {
    "Resize": {1: _resize_region, 2: _resize_scales, 3: _resize_sizes},
    "Upsample": {1: _resize_scales},
    "AffineGrid": {1: _affine_grid_size},
    "MaxUnpool": {2: _unpool_shape},
    "Col2Im": _for_inputs(_col2im_size, 1, 2),
}
