"""The catalogue of reason codes: what `aotc explain CODE` and the generated docs page print.

A code is stable: its meaning never changes, and a retired code is never used again.
Letters: I import and input, S shapes, O optimize, P placement, N numerics, M memory,
G signing and trust, C compatibility, R runtime.
"""

from __future__ import annotations

from typing import Final

from aotc.base.codes.build_codes import BUILDING
from aotc.base.codes.input_codes import INPUTS
from aotc.base.codes.load_codes import LOADING
from aotc.base.codes.reason import Reason

__all__ = ["REASONS", "Reason"]

REASONS: Final[dict[str, Reason]] = {
    row[0]: Reason(*row) for row in sorted((*INPUTS, *BUILDING, *LOADING))
}
"""Every reason by its code, in the order of the codes."""
