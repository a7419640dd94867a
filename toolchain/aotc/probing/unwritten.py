"""Detects outputs with uninitialized memory, which some kernels return at size 0.

ONNX Runtime's quantized products over zero elements leave their output as it was allocated (seen
with 1.31.1): such an output differs from session to session.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aotc.engine.parity import same_bits
from aotc.engine.session import run

if TYPE_CHECKING:
    import onnxruntime as ort

# mallopt(3): the size from which memory is mapped, and then zero; and the byte with which memory
# is filled when it is freed, and inverted when it is allocated.
_M_MMAP_THRESHOLD: Final = -3
_M_PERTURB: Final = -6
# Its maximum, and its value unless changed.
_LARGEST, _DEFAULT = 32 << 20, 128 << 10
_FILLS: Final = (0x55, 0xAA, 0x33)
# glibc keeps up to 7 freed blocks of each size up to 1032 bytes per thread, and reuses them as they
# are.
_MAX_CACHED_BYTES, _BLOCKS = 1056, 8


def unpooled_options(options: ort.SessionOptions) -> ort.SessionOptions:
    """`options` for a session that allocates every tensor separately."""
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def is_unwritten(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> bool:
    """Whether the outputs of a session with `unpooled_options` depend on earlier memory contents.

    If the C library cannot fill memory: whether outputs differ between runs.  Raises AOTC-R005.
    """
    answers = []
    for fill in _FILLS:
        with _memory_filled_with(fill):
            answers.append(run(session, inputs))
    first, *others = answers
    return not all(same_bits(first, other) for other in others)


@contextmanager
def _memory_filled_with(byte: int) -> Iterator[None]:
    """Let newly allocated memory of this thread hold `byte` or its inverse meanwhile."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    mallopt = getattr(library, "mallopt", None)
    if library is None or mallopt is None:
        yield
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    _fill_free_blocks(library, byte)
    mallopt(_M_PERTURB, byte)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
        mallopt(_M_MMAP_THRESHOLD, _DEFAULT)


def _fill_free_blocks(library: ctypes.CDLL, byte: int) -> None:
    """Allocate more small blocks than are kept of any size, fill them, and free them."""
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    sizes = range(16, _MAX_CACHED_BYTES, 16)
    blocks = [(library.malloc(size), size) for size in sizes for _ in range(_BLOCKS)]
    for block, size in blocks:
        if block:
            ctypes.memset(block, byte, size)
    for block, _ in blocks:
        library.free(block)
