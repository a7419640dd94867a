"""Reading an artifact that another command replaces meanwhile (`--force`).

Its path always leads to the old or the new folder, but the files of an open old folder are removed.
So a read that fails is repeated from the start if the path leads to another folder afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from aotc.errors import AotcError

# The limit for an artifact that is replaced all the time.
_MAX_READS: Final = 10

T = TypeVar("T")


def reread(place: Path, read: Callable[[], T], *, holds: Callable[[T], bool] = lambda _: True) -> T:
    """The result of `read` for the artifact at `place`, if that was not replaced meanwhile.

    `read` is repeated if it raises an AotcError, or `holds` is false for its result, and the
    artifact was replaced.  Raises what the last read does.
    """
    for _ in range(_MAX_READS - 1):
        before = _identity(place)
        try:
            found = read()
        except AotcError:
            if _identity(place) == before:
                raise
            continue
        if holds(found) or _identity(place) == before:
            return found
    return read()


def _identity(place: Path) -> tuple[int, int, int] | None:
    """Identifies the folder at a path, with its time of change, as inodes are reused."""
    try:
        found = os.stat(place)  # noqa: PTH116 - opening it reports a name that no file can have
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
