"""The colours of results, in one place: passed is green, failed red, and what was noticed yellow.

They are shown on a terminal alone; NO_COLOR takes them away, and FORCE_COLOR shows them in a pipe
too, as rich reads both.
"""

from __future__ import annotations

from typing import Final

PASSED: Final = "green"
FAILED: Final = "red"
NOTICED: Final = "yellow"

_OF_STATUS: Final = {
    "passed": PASSED,
    "ok": PASSED,
    "failed": FAILED,
    "bad": FAILED,
    "note": NOTICED,
}


class Result(str):
    """The text of a cell that is a result, with its colour; it is compared and cut as any text."""

    style: str

    def __new__(cls, text: str, style: str) -> Result:
        """The text in a style of rich's."""
        made = super().__new__(cls, text)
        made.style = style
        return made


def passed(text: str) -> Result:
    """A result as it should be."""
    return Result(text, PASSED)


def failed(text: str) -> Result:
    """A result as it should not be, or that is missing."""
    return Result(text, FAILED)


def noticed(text: str) -> Result:
    """What was noticed, and refuses nothing."""
    return Result(text, NOTICED)


def by_status(status: str) -> str:
    """A status in the colour of its result, if it has one."""
    style = _OF_STATUS.get(status)
    return Result(status, style) if style is not None else status
