"""What `--tune` and `precision: auto` tried: the evidence holds it, and `--tuned-from` reads it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from aotc.contract.cuda_options import Fusion, Layout
from aotc.contract.precision.quantization import Form
from aotc.contract.profile_terms import Isa, Level, Name, Precision
from aotc.contract.results.nodes.blamed import SearchEnd
from aotc.records import record


@record
class TuningCandidate:
    """One candidate for a variant, with its time if it passed parity and could be timed."""

    WIRE_NAMES: ClassVar = {"minimum_seconds": "least_seconds"}

    variant: Annotated[str, "variant of the profile"]
    providers: tuple[Name, ...]
    isa: Isa = "baseline"
    optimization: Level = "auto"
    precision: Precision = "keep"
    form: Annotated[Form, "of quantization; auto: as the profile says"] = "auto"
    fusion: Annotated[Fusion, "of the graph, for CUDA"] = "auto"
    layout: Annotated[Layout, "of images, on CUDA"] = "auto"
    threads: Annotated[int | None, "for one operator; None: one for each core"] = None
    passed: bool = False
    kept: Annotated[tuple[str, ...], "nodes without which in float32 it did not pass"] = ()
    trials: Annotated[int, "sessions that were run to find these nodes"] = 0
    search_ended: Annotated[
        SearchEnd, "by what the search for them ended; time: a quicker host may keep fewer"
    ] = "complete"
    reason: Annotated[str, "why it did not pass; empty if it passed"] = ""
    median_seconds: Annotated[
        float | None, "of one run; candidates are measured in turn; None: not run here"
    ] = None
    minimum_seconds: Annotated[float | None, "of the fastest run"] = None
    rounds: int = 0
    sizes: Annotated[str, "sizes of the dims in the runs"] = ""
    chosen: bool = False
