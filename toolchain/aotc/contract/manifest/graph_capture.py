"""Sizes that a variant's session captures as CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from aotc.contract.codec.parsing import Bounds
from aotc.contract.cuda_options import RefusedCapture
from aotc.records import record


@record
class GraphCapture:
    """Sizes that are captured when the variant is warmed up, and what is done with others.

    A captured graph is replayed with one launch.  It belongs to one combination of sizes, and reads
    and writes fixed buffers.
    """

    sizes: Annotated[
        tuple[Mapping[str, int], ...], "sizes of the free dims, each captured at warm-up"
    ]
    on_call: Annotated[bool, "further sizes are captured at their first call"] = False
    max_count: Annotated[int, Bounds(1), "captured sizes that are kept"] = 32
    max_bytes: Annotated[int, Bounds(0), "of device memory for captures"] = 8 << 30
    refused: Annotated[RefusedCapture, "if a capture is refused: fail, or run without"] = "fail"
