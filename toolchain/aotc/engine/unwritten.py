"""Whether a model answers from memory that no kernel wrote.

ONNX Runtime's products of integers leave their output as they find it where there is nothing to
sum, at an inner size of 0: that runs, and answers whatever was in memory.  So the model is run
twice without ONNX Runtime's own pools, while the C library fills what it hands out with one byte,
and then with another (mallopt(3), M_PERTURB; what glibc keeps for a thread's next small requests is
filled by hand).  Where the C library has no such option, the two runs are compared all the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from aotc.contract.profile import Tolerance
from aotc.engine.parity import compare
from aotc.engine.session import run

_M_MMAP_THRESHOLD, _M_PERTURB = -3, -6
# Larger blocks are mapped from the kernel, which fills them with zeros.
_ALL, _USUAL = 1 << 30, 32 << 20
# glibc keeps up to 7 blocks of each size up to 1032 bytes for a thread.
_KEPT_BYTES, _KEPT = 1056, 8
_FILLS: Final = (0x55, 0xAA)
_EXACT: Final = Tolerance(atol=0.0, rtol=0.0, min_cosine=-1.0)


def answers_from_unwritten(create: Callable[[], Any], inputs: Mapping[str, Any]) -> bool:
    """Whether two runs on `inputs` differ when only what memory held before does.

    `create` makes a session without memory pools.  Raises AOTC-R005 where a run fails.
    """
    session = create()
    with _filled(_FILLS[0]):
        first = run(session, inputs)
    with _filled(_FILLS[1]):
        second = run(session, inputs)
    return not all(
        compare(one, other, _EXACT, "").passed for one, other in zip(first, second, strict=True)
    )


@contextmanager
def _filled(byte: int) -> Iterator[None]:
    """Memory that is handed out holds `byte`, or its complement, in each of its bytes."""
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_M_MMAP_THRESHOLD, _ALL)
    _fill_kept(library, byte)
    mallopt(_M_PERTURB, byte)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
        mallopt(_M_MMAP_THRESHOLD, _USUAL)


def _fill_kept(library: ctypes.CDLL, byte: int) -> None:
    """Take more small blocks than are kept of any size, fill them, and give them back."""
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    blocks = [
        (library.malloc(size), size) for size in range(16, _KEPT_BYTES, 16) for _ in range(_KEPT)
    ]
    for block, size in blocks:
        if block:
            ctypes.memset(block, byte, size)
    for block, _ in blocks:
        library.free(block)
