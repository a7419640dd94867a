"""What is mounted where, as far as the system tells."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
# Blanks and backslashes of a path stand there as octal digits (proc_pid_mountinfo(5)).
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_PLACE: Final = 4


def mounted_in(folder: Path) -> Path | None:
    """A mount point that is `folder` or lies below it; None where none is known."""
    try:
        rows = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return None
    top = os.fsencode(os.path.realpath(folder))
    for row in rows:
        fields = row.split(b" ", _PLACE + 1)
        if len(fields) <= _PLACE:
            continue
        place = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), fields[_PLACE])
        if place == top or place.startswith(top + b"/"):
            return Path(os.fsdecode(place))
    return None
