"""Findings: what was noticed, and refuses nothing."""

from __future__ import annotations

from typing import Annotated

from aotc.contract.codec.parsing import Pattern
from aotc.records import record


@record
class Finding:
    """Something noticed that refuses nothing."""

    code: Annotated[str, Pattern(r"AOTC-[A-Z]\d{3}")]
    what: str
    where: str = ""
