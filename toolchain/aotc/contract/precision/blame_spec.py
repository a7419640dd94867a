"""What a build does to find the nodes that make a variant in a lower precision too inexact."""

from __future__ import annotations

from typing import Annotated

from aotc.contract.codec.parsing import Bounds
from aotc.records import record


@record
class BlameSpec:
    """The search for the nodes to blame, which a build does only where it fails otherwise."""

    trials: Annotated[
        int,
        Bounds(0, 1000),
        "sessions that searches for the smallest set of nodes to keep in float32 may make and run, "
        "together for a variant, or for one candidate of its tuning; 0: it is not searched",
    ] = 15
