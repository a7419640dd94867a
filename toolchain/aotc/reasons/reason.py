"""What one code says, and the exit statuses that a code may have."""

from __future__ import annotations

from typing import Final

from aotc.records import record

NO: Final = 1
INPUT: Final = 3
USAGE: Final = 2
BUG: Final = 70
FINDING: Final = 0

# Code, title, exit status, explanation, mend.
Row = tuple[str, str, int, str, str]


@record(kw_only=False)
class Reason:
    """One code.  `exit_status` 0 marks a finding that is reported and refuses nothing."""

    code: str
    title: str
    exit_status: int
    explain: str
    fix: str
