"""Page-locked host memory, used again when the arrays in it are gone."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from aotc.errors import AotcError

# Blocks of one size class serve all smaller requests of that class.
_SMALLEST = 1 << 12
# Classes between a power of two and the next: at most an eighth of a block is not used.
_CLASS_BITS = 3


class PinnedMemory:
    """A pool of page-locked blocks; thread-safe.

    An array that `take` returned owns its block: the block is free again when the array and all
    views of it are gone.  What is larger than all that may be kept, or would be more than may be
    locked, is ordinary memory: to lock pages takes longer than to copy to others.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        kept_bytes: int,
        most_bytes: int,
    ) -> None:
        """`kept_bytes` limits what is kept for later, `most_bytes` what arrays hold.

        Of kept blocks, the one that was not used for the longest time is freed first.  `allocate`
        and `free` are the device's; the former raises AotcError where there is no memory.
        """
        self._allocate = allocate
        self._free = free
        self._kept_bytes = kept_bytes
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()
        # By size, and all of them with their sizes, the first returned first.
        self._idle: dict[int, list[int]] = defaultdict(list)
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._idle_bytes = 0
        self._closed = False
        # Blocks whose arrays are gone: a destructor may run in any thread, at any place, and so
        # takes no lock.
        self._returned: deque[tuple[int, int]] = deque()

    def take(self, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """An array of `count` bytes whose values are not set."""
        size = _class_of(count)
        with self._lock:
            self._sort_returned()
            idle = self._idle[size]
            address = idle.pop() if idle else 0
            if address:
                del self._sizes[address]
                self._idle_bytes -= size
            elif size > self._kept_bytes or self._held_bytes + size > self._most_bytes:
                return np.empty(count, np.uint8)
            self._held_bytes += size
        address = address or self._allocated(size)
        if not address:
            return np.empty(count, np.uint8)
        return np.asarray(_Block(address, size, self))[:count]

    def give_back(self, address: int, size: int) -> None:
        """Keep a block for later, or free it with the next call."""
        if self._closed:
            self._free(address)
        else:
            self._returned.append((address, size))

    def close(self) -> None:
        """Free the idle blocks; others are freed when their arrays are gone."""
        with self._lock:
            self._closed = True
            self._kept_bytes = 0
            self._sort_returned()
        self._free_idle()

    def _allocated(self, size: int) -> int:
        """The address of a new block; 0 if there is no memory for it."""
        try:
            return self._allocate(size)
        except AotcError:
            self._free_idle()
        try:
            return self._allocate(size)
        except AotcError:
            with self._lock:
                self._held_bytes -= size
            return 0

    def _free_idle(self) -> None:
        with self._lock:
            addresses = list(self._sizes)
            self._idle.clear()
            self._sizes.clear()
            self._idle_bytes = 0
        for address in addresses:
            self._free(address)

    def _sort_returned(self) -> None:
        """Keep returned blocks by their size, and free others where there is no room for all."""
        while self._returned:
            address, size = self._returned.popleft()
            self._held_bytes -= size
            if size > self._kept_bytes:
                self._free(address)
                continue
            self._idle[size].append(address)
            self._sizes[address] = size
            self._idle_bytes += size
            while self._idle_bytes > self._kept_bytes:
                oldest, its_size = self._sizes.popitem(last=False)
                self._idle[its_size].remove(oldest)
                self._idle_bytes -= its_size
                self._free(oldest)


def _class_of(count: int) -> int:
    """The size of the blocks that serve a request of `count` bytes."""
    if count <= _SMALLEST:
        return _SMALLEST
    step = 1 << ((count - 1).bit_length() - 1 - _CLASS_BITS)
    return -(-count // step) * step


class _Block:
    """One block, as numpy wants it described."""

    def __init__(self, address: int, size: int, pool: PinnedMemory) -> None:
        self._address = address
        self._size = size
        self._pool = pool
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._pool.give_back(self._address, self._size)
