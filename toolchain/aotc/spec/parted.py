"""Axes of outputs along which a graph joins what is of different kinds, or takes it apart."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.base.records import record
from aotc.spec.codec import Bounds


@record
class LayoutStep:
    """One step from an output back to the form in which its graph made it.

    The `dims` of a transpose are its permutation.  Those of a reshape are sizes, one of which may
    be -1 for what is left; -2 - k stands for the size of the output's axis k.  Those of a slice are
    an axis, and the first index and the one after the last.
    """

    kind: Literal["transpose", "reshape", "slice"]
    dims: tuple[int, ...]


@record
class PartedAxis:
    """An axis of an output, after `steps`, and the parts on it: each up to the next one's start."""

    node: Annotated[str, "node that joins the parts or the axis, or takes them apart"]
    steps: tuple[LayoutStep, ...] = ()
    axis: Annotated[int, Bounds(0)]
    starts: Annotated[tuple[int, ...], "first index of each part; of one part: of no known ones"]
    joined: Annotated[tuple[str, ...], "values that a Concat joins to the parts, if known"] = ()
