"""What a reason code says, and the exit statuses that a code may have."""

from __future__ import annotations

from typing import Final

from aotc.base.records import record

# Exit statuses of the command line, by the kind of reason.
FINDING: Final = 0
NO: Final = 1
USAGE: Final = 2
INPUT: Final = 3
BUG: Final = 70

# Code, title, exit status, explanation, fix.
Row = tuple[str, str, int, str, str]


@record(kw_only=False)
class Reason:
    """One reason code, and what is said about it.

    `title` is a phrase, `explain` and `fix` are sentences.  `exit_status` is that of a command which
    ends with this reason; 0 marks a finding, which is reported and refuses nothing.
    """

    code: str
    title: str
    exit_status: int
    explain: str
    fix: str
