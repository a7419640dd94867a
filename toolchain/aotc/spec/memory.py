"""Memory as it is planned: the buffers of a variant's graph, and what the arena takes for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

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
    input_bytes: Annotated[int, "inputs that are copied into the arena: those on a GPU"] = 0
    pattern_bytes: Annotated[
        int, "the block that holds all buffers but outputs, from the second call of a size on"
    ] = 0
    first_bytes: Annotated[
        int, "the arena's most bytes in use in a first call, with whole chunks, beside weights"
    ]
    later_bytes: Annotated[int, "the same in later calls of the size"]
    arena_bytes: Annotated[
        int, "what the arena took from the system by then; of a GPU, beside weights"
    ]
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
class PlannedCopies:
    """Values that one provider hands to another in a call of one size, in bytes.

    Between a GPU and the host they are copied; providers of one memory may read them in place.
    """

    sizes: Annotated[Mapping[str, int], "sizes of all dims in the call"]
    source: Annotated[str, "provider that has them; empty: the caller"]
    target: Annotated[str, "provider that reads them; empty: the caller"]
    values: int
    bytes: int
    unknown: Annotated[int, "values of unknown size, which add no bytes"] = 0


@record
class PlannedCapture:
    """What a captured size holds on the GPU until its session ends, in bytes."""

    sizes: Mapping[str, int]
    buffers_bytes: Annotated[int, "its inputs, beside the arena"]
    arena_bytes: Annotated[
        int,
        "what the arena took for it, its outputs included, beyond weights and what it had of sizes "
        "captured before it",
    ]


@record
class PlannedDevice:
    """What sessions of a variant take of a GPU, in bytes, but for the workspace of its kernels.

    What libraries such as cuDNN need while a kernel runs is in no plan: it is the difference to
    what was observed.
    """

    weights_bytes: Annotated[int, "copied there by each session"]
    sessions: Annotated[
        int, "that have the weights: one, or one for each captured size and one for other calls"
    ] = 1
    growth: Annotated[Literal["doubling", "exact"], "how its arena grows"] = "doubling"
    at: Annotated[tuple[PlannedRun, ...], "of the arena there, for calls with inputs of the host"]
    curve: Annotated[tuple[CurvePoint, ...], "from the smallest size to the largest"] = ()
    exact_bytes: Annotated[
        int,
        "that an arena takes beside weights, for the sizes captured in its session, then for all "
        "sizes, smallest first, if it grows by what is asked for",
    ]
    doubling_bytes: Annotated[int, "the same if each step is twice the one before"]
    captures: tuple[PlannedCapture, ...] = ()

    @property
    def captured_bytes(self) -> int:
        """What all captured sizes hold, without weights."""
        return sum(each.buffers_bytes + each.arena_bytes for each in self.captures)


@record
class PlannedMemory:
    """The memory plan of a variant, in bytes: that of the host, and of a GPU where it uses one."""

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
    device: Annotated[
        PlannedDevice | None, "of the GPU; None: no node runs there, or none is planned"
    ] = None
    copies: Annotated[
        tuple[PlannedCopies, ...],
        "at boundaries of providers, and from and to a caller on the host",
    ] = ()
    why_not: Annotated[str, "why there is no plan, in words; empty if there is"] = ""
    elsewhere: Annotated[bool, "whether that is because nodes run on another provider"] = False
