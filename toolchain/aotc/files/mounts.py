"""What is mounted where, as far as the system tells."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from aotc.records import record

_PROC: Final = Path("/proc/self")
# Blanks and backslashes of a path stand there as octal digits (proc_pid_mountinfo(5)).
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


@record(kw_only=False)
class Mount:
    """A row of /proc/self/mountinfo: its number, device (`8:1`), place and kind of file system."""

    number: str
    device: str
    place: bytes
    kind: str


def mounted_in(folder: Path) -> Path | None:
    """A mount point that is `folder` or lies below it; None where none is known."""
    top = os.fsencode(os.path.realpath(folder))
    try:
        for mount in _mounts():
            if mount.place == top or mount.place.startswith(top + b"/"):
                return Path(os.fsdecode(mount.place))
    except OSError:
        pass
    return None


def about(descriptor: int) -> dict[str, str]:
    """What the system tells of an open file, such as `mnt_id` and `ino`; raises OSError."""
    text = (_PROC / "fdinfo" / str(descriptor)).read_text("ascii", "replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def mount_of(told: Mapping[str, str]) -> Mount | None:
    """The mount of the open file that `about` tells of; raises OSError."""
    number = told.get("mnt_id")
    return next((mount for mount in _mounts() if mount.number == number), None)


def _mounts() -> Iterator[Mount]:
    for row in (_PROC / "mountinfo").read_bytes().splitlines():
        mount, _, source = row.partition(b" - ")
        fields = mount.split(b" ")
        if len(fields) < 5:
            continue
        yield Mount(
            number=fields[0].decode("ascii", "replace"),
            device=fields[2].decode("ascii", "replace"),
            place=_ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), fields[4]),
            kind=source.partition(b" ")[0].decode("utf-8", "replace"),
        )
