"""What `--tune` measured: the evidence holds it, and `--tuned-from` reads it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from aotc.contract.cuda_options import Fusion, Layout
from aotc.contract.profile_terms import Isa, Level, Name, Precision
from aotc.records import record


@record
class TuningCandidate:
    """One candidate for a variant, with its time if it passed parity."""

    WIRE_NAMES: ClassVar = {"minimum_seconds": "least_seconds"}

    variant: Annotated[str, "variant of the profile"]
    providers: tuple[Name, ...]
    isa: Isa = "baseline"
    optimization: Level = "auto"
    precision: Precision = "keep"
    fusion: Annotated[Fusion, "of the graph, for CUDA"] = "auto"
    layout: Annotated[Layout, "of images, on CUDA"] = "auto"
    threads: Annotated[int | None, "for one operator; None: one for each core"] = None
    passed: bool = False
    reason: Annotated[str, "why it did not pass; empty if it passed"] = ""
    median_seconds: Annotated[float | None, "of one run; candidates are measured in turn"] = None
    minimum_seconds: Annotated[float | None, "of the fastest run"] = None
    rounds: int = 0
    sizes: Annotated[str, "sizes of the dims in the runs"] = ""
    chosen: bool = False
