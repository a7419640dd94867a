"""What `--tune` measured, as the evidence holds it and `--tuned-from` reads it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from aotc.contract.profile_terms import Isa, Level, Name, Precision
from aotc.records import record


@record
class TuningCandidate:
    """One candidate for a variant: what it was, and how fast where it passed parity."""

    WIRE_NAMES: ClassVar = {"minimum_seconds": "least_seconds"}

    variant: Annotated[str, "the profile's variant"]
    providers: tuple[Name, ...]
    isa: Isa = "baseline"
    optimization: Level = "auto"
    precision: Precision = "keep"
    threads: Annotated[int | None, "of one operator; None: one for each core"] = None
    passed: bool = False
    reason: Annotated[str, "why it did not pass; empty where it did"] = ""
    median_seconds: Annotated[float | None, "of one run, rounds alternating"] = None
    minimum_seconds: Annotated[float | None, "the quickest run"] = None
    rounds: int = 0
    sizes: Annotated[str, "of the dims in the runs"] = ""
    chosen: bool = False
