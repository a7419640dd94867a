"""ONNX Runtime's arena, simulated: which chunks serve requests, and what the arena takes for it.

The rules are those of its "best fit with coalescing" allocator with the extension by powers of two,
the default of the CPU and CUDA providers: requests are rounded up to 256 bytes; the smallest free
chunk that fits is taken, and split if what is left is worth it; without one the arena extends by a
region, twice as large as the one before; neighbors within a region are joined when they are free.
A chunk that is not split counts as a whole: the bytes in use that ONNX Runtime reports are up to
twice what was asked for, which no sum of tensors shows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

ALIGNMENT: Final = 256
"""Requests are rounded up to multiples of so many bytes."""
FIRST_REGION: Final = 1 << 20
"""The size of the first region, where requests fit."""
_WORTH_SPLITTING: Final = 128 << 20


class _Chunk:
    """A piece of a region: `place` is in one address space, in which regions do not touch."""

    __slots__ = ("after", "before", "free", "place", "size")

    def __init__(self, place: int, size: int) -> None:
        self.place = place
        self.size = size
        self.free = True
        self.before: _Chunk | None = None
        self.after: _Chunk | None = None

    def key(self) -> tuple[int, int, int]:
        """What free chunks are sorted by: their bin, then size and place within it."""
        return bin_of(self.size), self.size, self.place


def bin_of(size: int) -> int:
    """The bin of a free chunk: they double in size from 256 bytes, and there are 21."""
    return min(max(size // ALIGNMENT, 1).bit_length() - 1, 20)


def rounded(size: int) -> int:
    """Bytes that a request for `size` bytes needs of a chunk."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena:
    """One arena, empty at first.

    `in_use`, `peak` and `held` are bytes: of the chunks in use, their largest sum since
    `start_peak`, and of all regions.
    """

    def __init__(self, *, grows: bool = True) -> None:
        """`grows`: by powers of two; else each region is as large as what was asked for."""
        self.in_use = 0
        self.peak = 0
        self.held = 0
        self.extensions = 0
        self._grows = grows
        self._region = FIRST_REGION
        self._end = 0
        self._free: list[tuple[int, int, int]] = []
        self._by_place: dict[int, _Chunk] = {}

    def start_peak(self) -> None:
        """Forget the largest sum so far."""
        self.peak = self.in_use

    def allocate(self, size: int) -> int | None:
        """The place of a chunk for `size` bytes; None for none."""
        if size <= 0:
            return None
        wanted = rounded(size)
        chunk = self._fitting(wanted)
        if chunk is None:
            self._extend(wanted)
            chunk = self._fitting(wanted)
        assert chunk is not None
        chunk.free = False
        self.in_use += chunk.size
        self.peak = max(self.peak, self.in_use)
        return chunk.place

    def release(self, place: int | None) -> None:
        """Give back the chunk at `place`."""
        if place is None:
            return
        chunk = self._by_place[place]
        chunk.free = True
        self.in_use -= chunk.size
        if chunk.after is not None and chunk.after.free:
            self._forget(chunk.after)
            self._join(chunk, chunk.after)
        if chunk.before is not None and chunk.before.free:
            self._forget(chunk.before)
            chunk = self._join(chunk.before, chunk)
        insort(self._free, chunk.key())

    def _fitting(self, wanted: int) -> _Chunk | None:
        at = bisect_left(self._free, (bin_of(wanted), wanted, -1))
        if at == len(self._free):
            return None
        chunk = self._by_place[self._free.pop(at)[2]]
        if chunk.size >= 2 * wanted or chunk.size - wanted >= _WORTH_SPLITTING:
            rest = _Chunk(chunk.place + wanted, chunk.size - wanted)
            rest.before, rest.after = chunk, chunk.after
            if rest.after is not None:
                rest.after.before = rest
            chunk.after, chunk.size = rest, wanted
            self._by_place[rest.place] = rest
            insort(self._free, rest.key())
        return chunk

    def _extend(self, wanted: int) -> None:
        size = wanted
        if self._grows:
            doubled = False
            while wanted > self._region:
                self._region *= 2
                doubled = True
            size = self._region
            if not doubled:
                self._region *= 2
        # Regions that touched would be one: they are joined nowhere.
        chunk = _Chunk(self._end, size)
        self._end += size + ALIGNMENT
        self.held += size
        self.extensions += 1
        self._by_place[chunk.place] = chunk
        insort(self._free, chunk.key())

    def _forget(self, chunk: _Chunk) -> None:
        del self._free[bisect_left(self._free, chunk.key())]

    def _join(self, one: _Chunk, other: _Chunk) -> _Chunk:
        one.size += other.size
        one.after = other.after
        if one.after is not None:
            one.after.before = one
        del self._by_place[other.place]
        return one
