"""Whether an answer holds memory that nobody wrote, as it does of some kernels at size 0.

ONNX Runtime's quantized products over no elements leave their output as it was allocated
(seen with 1.31.1): such an answer is no answer, and differs from session to session.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aotc.engine.parity import same_bits
from aotc.engine.session import run

if TYPE_CHECKING:
    import onnxruntime as ort

# mallopt(3): the byte that memory is filled with when it is allocated, inverted, and freed.
_M_PERTURB: Final = -6
_FILLS: Final = (0x55, 0xAA, 0x33)


def bare_options(options: ort.SessionOptions) -> ort.SessionOptions:
    """`options` for a session that allocates every tensor anew."""
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def is_unwritten(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> bool:
    """Whether the answers of a session with `bare_options` depend on what its memory held.

    False where the C library cannot fill memory.  Raises AOTC-R005.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    answers = []
    try:
        for fill in _FILLS:
            mallopt(_M_PERTURB, fill)
            answers.append(run(session, inputs))
    finally:
        mallopt(_M_PERTURB, 0)
    first, *others = answers
    return not all(same_bits(first, other) for other in others)
