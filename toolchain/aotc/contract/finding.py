"""Findings: what was noticed without a refusal."""

from __future__ import annotations

from typing import Annotated

from aotc.contract.codec.parsing import Pattern
from aotc.records import record


@record
class Finding:
    """Something that was noticed and does not lead to a refusal, with its place."""

    code: Annotated[str, Pattern(r"AOTC-[A-Z]\d{3}")]
    what: str
    where: str = ""
