"""Ranges with gaps: both ends run, and most sizes between do not."""

from __future__ import annotations

from collections.abc import Callable

# Where in a range sizes are tried for gaps.
_INNER = (0.07, 0.19, 0.31, 0.47, 0.58, 0.73, 0.91)


def without_gaps(
    low: int, high: int, works: Callable[[int], bool]
) -> tuple[int, int, int, tuple[int, ...]]:
    """Bounds and grid on which sizes drawn from the range run, and the sizes that still fail.

    Pooling that rounds down and up again leaves gaps: bounds run, and most sizes between do not.
    Where no grid avoids them, the range stays as it is, with the sizes that were seen to fail.
    """
    failed: list[int] = []
    for grid in (1, 2, 4, 8, 16, 32, 64):
        first, last = -(-low // grid) * grid if low else 0, high // grid * grid
        inner = {int(low + (high - low) * share) // grid * grid for share in _INNER}
        inner = {size for size in inner if first < size < last}
        if grid > 1:
            first = first or grid
            if not inner or not (works(first) and works(last)):
                continue
        broken = [size for size in sorted(inner) if not works(size)]
        if not broken:
            return first, last, grid, ()
        failed += broken
    return low, high, 1, tuple(sorted(set(failed)))
