"""Which sizes are measured, and may become buckets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

# So many sizes of one dim, or of each of two, are measured at most, beside powers of two.
ONE_DIM = 32
TWO_DIMS = 7
_GRIDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def candidates(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """Candidate sizes for recorded `sizes`, rising; the last holds the largest of them.

    The recorded sizes themselves where they are few; else rounded up to the finest grid of powers
    of two that leaves at most `most`.  Powers of two up to the largest come along, so that plans of
    powers of two are measured and not guessed.
    """
    seen = sorted(set(sizes))
    largest = seen[-1]
    chosen: Sequence[int] = seen
    for grid in _GRIDS:
        chosen = sorted({-(-size // grid) * grid or grid for size in seen})
        if len(chosen) <= most:
            break
    # The smallest keeps its own cost, so that none is guessed below it.
    found = {*chosen, max(seen[0], 1)}
    found |= set(powers_of_two(seen[0], max(chosen[-1], largest)))
    return tuple(sorted(found))


def powers_of_two(smallest: int, largest: int) -> tuple[int, ...]:
    """Powers of two that hold sizes from `smallest` on; the last is `largest` itself."""
    powers, power = [], 1
    while power < largest:
        if power >= smallest:
            powers.append(power)
        power *= 2
    return (*powers, largest)


def between(counts: Mapping[int, int], chosen: Sequence[int]) -> tuple[int, ...]:
    """Of the recorded sizes between two neighbours of `chosen`, the one of most requests each."""
    found = []
    for low, high in itertools.pairwise(chosen):
        inside = {size: count for size, count in counts.items() if low < size < high}
        if inside:
            found.append(max(inside, key=lambda size: (inside[size], size)))
    return tuple(found)
