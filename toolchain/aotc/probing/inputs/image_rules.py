"""What operators of images ask of inputs that are sizes, scales and regions, element for element.

Where the shape of a node's result is declared, its inputs are those that give it.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from aotc.probing.inputs.extents import Extent, less, product, total
from aotc.probing.inputs.value_flow import Use, size_at
from aotc.probing.inputs.value_rules import Hint, Rule, full, vector

# Sizes of a result that nothing is declared of.
_SOME: Final = 4
# Blocks that are looked through at most.
_MOST_WAYS: Final = 4096


def _resize_axes(use: Use) -> list[int] | None:
    axes = use.attribute("axes")
    rank = use.rank(0)
    if axes is not None:
        return [axis % rank if rank else axis for axis in axes]
    return None if rank is None else list(range(rank))


def _scales(use: Use) -> Hint | None:
    """Resize, Upsample: the declared result by the data; else batch and channels are kept."""
    if use.length() == 0:
        return None
    axes = _resize_axes(use)
    if axes is None:
        return full(1)
    data, made = use.shape(0), use.made()
    scales: list[float] = []
    for axis in axes:
        size, wanted = size_at(data, axis), size_at(made, axis)
        if isinstance(size, int) and isinstance(wanted, int) and size:
            scales.append(_scale(size, wanted))
        else:
            scales.append(1.0 if axis < 2 else 2.0)
    return {"kind": "vector", "values": scales}


def _scale(size: int, wanted: int) -> float:
    """A ratio under which `size` becomes `wanted` when the product is rounded down.

    A little above the quotient, as a float32 below it would lose one element.
    """
    return wanted / size if wanted % size == 0 else (wanted + 0.25) / size


def _resized(use: Use) -> Hint | None:
    if use.length() == 0:
        return None
    axes = _resize_axes(use)
    data, made = use.shape(0), use.made()
    if axes is None:
        return None
    wanted = [size_at(made, axis) for axis in axes]
    own = [size_at(data, axis) for axis in axes]
    return vector(
        [
            one if one is not None else (other if other is not None else _SOME)
            for one, other in zip(wanted, own, strict=True)
        ]
    )


def _region(use: Use) -> Hint | None:
    """Resize: all of the data, as parts of its sizes; up to opset 10 the scales stand there."""
    if not use.has(2) and not use.has(3):
        return _scales(use)
    axes = _resize_axes(use)
    if axes is None or use.length() == 0:
        return None
    return vector([*[0] * len(axes), *[1] * len(axes)])


def _grid(use: Use) -> Hint | None:
    """AffineGrid: the batch of theta, one channel, and the declared image."""
    made = use.made()
    count = use.length() or (len(made) + 1 if made else 4)
    image = list(made[1:-1]) if made is not None else [_SOME] * (count - 2)
    return vector([use.size(0, 0), 1, *(_SOME if size is None else size for size in image)])


def _unpooled(use: Use) -> Hint | None:
    made = use.made()
    if made is not None and None not in made:
        return vector(made)
    strides = use.attribute("strides") or [1] * len(use.attribute("kernel_shape", []))
    data = use.shape(0)
    if data is None:
        return None
    return vector(
        [*data[:2], *(product(size, step) for size, step in zip(data[2:], strides, strict=False))]
    )


def _image(use: Use) -> Hint | None:
    """Col2Im: an image and a block whose number of places is that of the columns."""
    made, columns, rank = use.made(), use.shape(0), use.length(1) or use.length(2)
    if columns is None or not rank:
        return None
    image = list(made[2:]) if made is not None else [None] * rank
    channels = made[1] if made is not None else None
    for block in _blocks(columns[1], channels, rank):
        sizes = [
            use.constant(1)[at] if use.constant(1) else image[at]  # type: ignore[index]
            for at in range(rank)
        ]
        places = [_places(use, at, block[at], sizes[at]) for at in range(rank)]
        if None in sizes:
            sizes = [_covering(use, at, block[at], columns[2], at == 0) for at in range(rank)]
        elif isinstance(columns[2], int) and math.prod(places) != columns[2]:
            continue
        return vector(sizes if use.index == 1 else block)
    return None


def _blocks(rows: Extent | None, channels: Extent | None, rank: int) -> list[tuple[int, ...]]:
    """Blocks with as many elements as the columns have rows for each channel; squares first."""
    if not isinstance(rows, int):
        return [(1,) * rank]
    each = rows // channels if isinstance(channels, int) and channels else rows
    divisors = [size for size in range(1, min(each, 64) + 1) if each % size == 0]
    ways = itertools.islice(itertools.product(divisors, repeat=rank), _MOST_WAYS)
    return sorted(
        (way for way in ways if math.prod(way) == each), key=lambda way: (max(way) - min(way), way)
    )


def _places(use: Use, axis: int, block: int, size: Extent | None) -> int:
    """Where a block fits along one axis of the image."""
    if not isinstance(size, int):
        return 0
    rank = use.length(1) or use.length(2) or 0
    step = (use.attribute("strides") or [1] * rank)[axis]
    wide = (use.attribute("dilations") or [1] * rank)[axis] * (block - 1) + 1
    pads = use.attribute("pads") or [0] * 2 * rank
    return int((size + pads[axis] + pads[axis + rank] - wide) // step + 1)


def _covering(use: Use, axis: int, block: int, places: Extent | None, first: bool) -> Extent | None:
    """A size of the image with all places along its first axis, and one along the others."""
    rank = use.length(1) or use.length(2) or 0
    step = (use.attribute("strides") or [1] * rank)[axis]
    wide = (use.attribute("dilations") or [1] * rank)[axis] * (block - 1) + 1
    pads = use.attribute("pads") or [0] * 2 * rank
    moved = product(step, less(places, 1)) if first else 0
    return total(wide, moved, -pads[axis] - pads[axis + rank])


def _each(rule: Rule, *indices: int) -> dict[int, Rule]:
    return dict.fromkeys(indices, rule)


# By operator and index of the input.
IMAGE_RULES: Final[dict[str, dict[int, Rule]]] = {
    "Resize": {1: _region, 2: _scales, 3: _resized},
    "Upsample": {1: _scales},
    "AffineGrid": {1: _grid},
    "MaxUnpool": {2: _unpooled},
    "Col2Im": _each(_image, 1, 2),
}
