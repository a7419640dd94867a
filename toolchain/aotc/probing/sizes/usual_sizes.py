"""Sizes that users commonly choose, for ranges that are not stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aotc.contract.shapes.domain import Dim
from aotc.probing.sizes.dim_hints import Kind

IMAGES: Final = (224, 256, 320, 384, 416, 448, 512, 640, 720, 736, 1024)
# Maximums that all dims should reach before any dim grows further.
TARGETS: Final[Mapping[Kind, int]] = {"batch": 8, "image": 224, "length": 128}
# Sizes that a range is optimized for.
_OPTIMAL_SIZES: Final[Mapping[Kind, int]] = {"batch": 1, "image": 224, "length": 128}
_POWERS: Final = tuple(2**power for power in range(31))


def rungs_of(kind: Kind, low: int, high: int, step: int) -> tuple[int, ...]:
    """Candidates for the maximum of a range, ascending: multiples of `step` within `low..high`.

    Powers of two, the target, and for images the usual sizes.
    """
    wanted = {*_POWERS, TARGETS[kind], high, *(IMAGES if kind == "image" else ())}
    snapped = {size // step * step for size in wanted}
    return tuple(sorted({low, *(size for size in snapped if low <= size <= high)}))


def sizes_beyond(
    size: int, high: int, step: int, declared_sizes: Sequence[int] = ()
) -> tuple[int, ...]:
    """Sizes above `size` at which a model may run again, at most `high`, multiples of `step`.

    The next multiples of 8, 16, 32 and 64, the usual sizes of images, and `declared_sizes`.
    """
    near = {(size // grid + times) * grid for grid in (8, 16, 32, 64) for times in (1, 2)}
    return tuple(
        sorted(s for s in {*near, *IMAGES, *declared_sizes} if size < s <= high and s % step == 0)
    )


def optimum(kind: Kind, dim: Dim, fallback: int) -> int:
    """The size that a probed range is optimized for: a usual one, on its grid, outside its gaps.

    `fallback` is a size within the range, for a range above the usual sizes.
    """
    wanted = _OPTIMAL_SIZES[kind]
    step = dim.multiple_of
    if wanted < dim.min:
        return fallback
    size = min(dim.max, max(dim.min, wanted // step * step))
    if kind == "image" and dim.max < wanted:
        # Patches and strides round down: the intended size is a round number.
        fits = [power for power in _POWERS if dim.min <= dim.max // power * power > 0]
        round_size = dim.max // fits[-1] * fits[-1] if fits else size
        size = round_size if round_size % step == 0 else size
    if size == 0:
        # There is nothing to optimize for size 0.
        size = min(step, dim.max)
    if size in dim.gaps:
        size = min(dim.tested, key=lambda tested: (abs(tested - size), tested))
    return size
