"""Ranges with gaps: both ends run, but most sizes between them do not."""

from __future__ import annotations

from collections.abc import Callable

# Steps of the sizes that models accept: strides of 2, patches and windows of 7, 12 or 14.
GRIDS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
# On a grid coarser than this, at least so many sizes between the ends are tried.
_USUAL_GRID, _MIN_SAMPLES = 64, 2
# If a grid has at most this many sizes, all are tried.
_MAX_EXHAUSTIVE = 40
# Where in a range sizes are tried for gaps, as shares of it.
_SAMPLED_SHARES = (0.07, 0.19, 0.31, 0.47, 0.58, 0.73, 0.91)


def sampled_between(low: int, high: int, grid: int = 1) -> list[int]:
    """Sizes on `grid` strictly between `low` and `high`, spread over the range, at most seven."""
    inner = {int(low + (high - low) * share) // grid * grid for share in _SAMPLED_SHARES}
    return sorted(size for size in inner if low < size < high)


def without_gaps(
    low: int, high: int, runs_at: Callable[[int], bool]
) -> tuple[int, int, int, tuple[int, ...]]:
    """Bounds and grid on which all sampled sizes run, and the sizes that still fail.

    Pooling that rounds down and up again leaves gaps: the bounds run, most sizes between do not.
    If no grid avoids them, the range stays as it is, with the sizes that were seen to fail.
    """
    failed: list[int] = []
    for grid in (1, *GRIDS):
        first, last = -(-low // grid) * grid if low else 0, high // grid * grid
        inner = [size for size in sampled_between(low, high, grid) if first < size < last]
        if grid > 1:
            first = first or grid
            enough = len(inner) >= (_MIN_SAMPLES if grid > _USUAL_GRID else 1)
            if not enough or not (runs_at(first) and runs_at(last)):
                continue
        broken = [size for size in inner if not runs_at(size)]
        if not broken and grid > 1 and last <= first + _MAX_EXHAUSTIVE * grid:
            broken = [size for size in range(first, last, grid) if not runs_at(size)]
        if not broken:
            return first, last, grid, ()
        failed += broken
    return low, high, 1, tuple(sorted(set(failed)))
