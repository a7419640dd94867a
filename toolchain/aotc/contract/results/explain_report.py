"""What `aotc explain` answers: reason codes with their explanations."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from aotc.records import record


@record
class Explanation:
    """One reason code, explained; exit status 0 marks a finding, which does not refuse anything."""

    WIRE_NAMES: ClassVar = {"fix": "mend"}

    code: str
    title: str
    exit_status: int
    explain: str
    detail: Annotated[
        str, "how it is checked; empty if it is not the code of a compatibility check"
    ] = ""
    fix: str


@record
class ExplainReport:
    """`aotc explain CODE --json`."""

    schema: Literal["aotc.explain/1"] = "aotc.explain/1"
    reasons: tuple[Explanation, ...]
