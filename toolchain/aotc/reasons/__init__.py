"""The catalogue of reason codes: what `aotc explain CODE` and the generated docs page print.

A code is stable for ever: its meaning is never changed and a retired one is never used again.
Letters: I import and input, S shapes, O optimize, P placement, N numerics, M memory,
G signing and trust, C compatibility, R runtime.
"""

from __future__ import annotations

from typing import Final

from aotc.reasons.building import BUILDING
from aotc.reasons.inputs import INPUTS
from aotc.reasons.loading import LOADING
from aotc.reasons.reason import Reason
from aotc.reasons.trust import TRUST

__all__ = ["REASONS", "Reason"]

REASONS: Final[dict[str, Reason]] = {
    row[0]: Reason(*row) for row in (*INPUTS, *BUILDING, *LOADING, *TRUST)
}
