"""Reading an artifact that another command replaces meanwhile (`--force`).

The name leads to the old folder or to the new one at every moment, but who had opened the old one
finds its files removed.  A reading that fails is repeated where the name leads elsewhere by now.
It is repeated whole: nothing of the one is taken for the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from aotc.errors import AotcError

# Whoever replaces it all the time keeps nobody for longer.
_TRIES: Final = 10

_Read = TypeVar("_Read")


def reread(
    place: Path, read: Callable[[], _Read], *, holds: Callable[[_Read], bool] = lambda _: True
) -> _Read:
    """What `read` makes of the artifact at `place`, of one that stayed there meanwhile.

    A reading failed that raises, or of whose result `holds` says so.  Raises what the last one did.
    """
    for _ in range(_TRIES - 1):
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
    """Of what the name leads to; the time of its last change, as inodes come again."""
    try:
        found = os.stat(place)  # noqa: PTH116 - a name that no file can have is told by who opens it
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
