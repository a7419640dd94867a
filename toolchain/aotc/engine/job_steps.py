"""How far a job in another process is: it keeps a count in its folder, and who waits reads it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from aotc.watching import Count, Poll

_FILE: Final = "steps"


def tell_steps(done: int, total: int) -> None:
    """In the worker: `done` of `total` steps are done.  A count that cannot be kept is not told."""
    with contextlib.suppress(OSError):
        number = os.open(_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # Of one length, so that a reader never finds two counts mixed.
            os.write(number, f"{done:>10}{total:>10}".encode())
        finally:
            os.close(number)


def steps_of(folder: Path, unit: str) -> Poll:
    """What the job in `folder` told last, in `unit`."""

    def poll() -> Count | None:
        try:
            text = (folder / _FILE).read_text()
            return Count(int(text[:10]), int(text[10:20]), unit)
        except (OSError, ValueError):
            return None

    return poll
