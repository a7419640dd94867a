"""Memory as it is planned: the buffers of a variant's graph, and what the arena takes for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from aotc.base.records import record


@record
class AliveBuffer:
    """A buffer that is in use at the peak."""

    value: Annotated[str, "the value that it was made for"]
    bytes: int


@record
class PlannedRun:
    """What calls of one size take, in bytes, by the plan."""

    sizes: Annotated[Mapping[str, int], "sizes of all dims in the call"]
    fixture: Annotated[str, "whose sizes they are; empty: a size that was not run"] = ""
    live_bytes: Annotated[
        int, "the most that buffers, outputs and workspace ask for at once in a first call"
    ]
    node: Annotated[str, "the node that runs then"] = ""
    op: str = ""
    workspace_bytes: Annotated[int, "of it what the node's kernel needs while it runs"] = 0
    alive: Annotated[tuple[AliveBuffer, ...], "the largest buffers in use then"] = ()
    alive_count: Annotated[int, "buffers in use then"] = 0
    asked_bytes: Annotated[int, "the sum over all values that nodes make"]
    buffer_bytes: Annotated[int, "the sum over the buffers that they share"]
    output_bytes: int = 0
    pattern_bytes: Annotated[
        int, "the block that holds all buffers but outputs, from the second call of a size on"
    ] = 0
    first_bytes: Annotated[
        int, "the arena's most bytes in use in a first call, with whole chunks, beside weights"
    ]
    later_bytes: Annotated[int, "the same in later calls of the size"]
    arena_bytes: Annotated[int, "what the arena took from the system by then"]
    extensions: Annotated[int, "times that the arena grew"] = 0

    @property
    def peak_bytes(self) -> int:
        """The arena's most bytes in use at once, in a first call or a later one."""
        return max(self.first_bytes, self.later_bytes)

    @property
    def waste(self) -> float:
        """The share of the peak in use that nobody asked for: rounding, and chunks not split."""
        return 1 - self.live_bytes / self.peak_bytes if self.peak_bytes else 0.0


@record
class MemoryTerm:
    """A product of dims, such as `12·batch·seq²`."""

    bytes: Annotated[float, "its coefficient"]
    dims: Annotated[tuple[str, ...], "each as often as its power; empty: a number alone"] = ()


@record
class CurvePoint:
    """The planned peak of the arena at one size between the smallest and the largest."""

    sizes: Mapping[str, int]
    bytes: int


@record
class PlannedMemory:
    """The memory plan of a variant as the CPU provider runs its graph, in bytes."""

    mapped_bytes: Annotated[int, "weights in external files, which are mapped"] = 0
    copied_bytes: Annotated[int, "weights in the model file itself, which are copied"] = 0
    packed_bytes: Annotated[int, "weights that kernels keep a packed copy of"] = 0
    values: Annotated[int, "that nodes make"] = 0
    views: Annotated[int, "of them, that are a view of an input"] = 0
    in_place: Annotated[int, "that are written over an input"] = 0
    reused: Annotated[int, "that take a buffer that was free"] = 0
    at: tuple[PlannedRun, ...] = ()
    live: Annotated[
        tuple[MemoryTerm, ...], "`live_bytes` at the largest size, as a sum of products of dims"
    ] = ()
    unknown: Annotated[
        int, "values whose size follows no rule that was found: at other sizes, as at the largest"
    ] = 0
    curve: Annotated[tuple[CurvePoint, ...], "from the smallest size to the largest"] = ()
    why_not: Annotated[str, "why there is no plan, in words; empty if there is"] = ""
    elsewhere: Annotated[bool, "whether that is because nodes run on another provider"] = False
