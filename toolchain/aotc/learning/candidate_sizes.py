"""The sizes that are measured and can become buckets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

# The maximum numbers of measured sizes of one dim, or of each of two, apart from powers of two.
MAX_ONE_DIM = 32
MAX_TWO_DIMS = 7
_GRIDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def candidate_sizes(sizes: Iterable[int], max_count: int) -> tuple[int, ...]:
    """Candidate sizes for the recorded `sizes`, rising; the last is at least their maximum.

    They are the recorded sizes if there are few, otherwise sizes rounded up to the finest grid of
    powers of two that leaves at most `max_count`.  Powers of two up to the maximum are added, so
    that plans of powers of two are measured instead of estimated.
    """
    seen = sorted(set(sizes))
    largest = seen[-1]
    chosen: Sequence[int] = seen
    for grid in _GRIDS:
        chosen = sorted({-(-size // grid) * grid or grid for size in seen})
        if len(chosen) <= max_count:
            break
    # The smallest size keeps its own cost, so that none is extrapolated below it.
    found = {*chosen, max(seen[0], 1)}
    found |= set(powers_of_two(seen[0], max(chosen[-1], largest)))
    return tuple(sorted(found))


def powers_of_two(smallest: int, largest: int) -> tuple[int, ...]:
    """Powers of two from the first that holds `smallest`; the last element is `largest` itself."""
    powers, power = [], 1
    while power < largest:
        if power >= smallest:
            powers.append(power)
        power *= 2
    return (*powers, largest)


def sizes_between(counts: Mapping[int, int], chosen: Sequence[int]) -> tuple[int, ...]:
    """For each pair of neighbours in `chosen`, the most requested recorded size between them."""
    found = []
    for low, high in itertools.pairwise(chosen):
        inside = {size: count for size, count in counts.items() if low < size < high}
        if inside:
            found.append(max(inside, key=lambda size: (inside[size], size)))
    return tuple(found)
