"""How often a build repeats a call, to see whether equal calls have equal answers."""

from __future__ import annotations

from typing import Annotated

from aotc.contract.codec.parsing import Bounds
from aotc.records import record


@record
class RepeatSpec:
    """Repeated calls of every variant that the build host runs; AOTC-N040 tells of other bytes."""

    runs: Annotated[
        int, Bounds(0, 10_000), "calls of one fixture after the first; 0: none are repeated"
    ] = 3
