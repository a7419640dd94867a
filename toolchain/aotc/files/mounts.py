"""What is mounted where, as far as the system says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from aotc.records import record

_PROC: Final = Path("/proc/self")
# Blanks and backslashes in a path are written as octal digits (proc_pid_mountinfo(5)).
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


@record(kw_only=False)
class Mount:
    """A row of /proc/self/mountinfo: number, device (`8:1`), mount point, kind of file system."""

    number: str
    device: str
    point: bytes
    kind: str


def mounted_in(folder: Path) -> Path | None:
    """A mount point that is `folder` or lies below it; None if none is known."""
    top = os.fsencode(os.path.realpath(folder))
    try:
        for mount in _mounts():
            if mount.point == top or mount.point.startswith(top + b"/"):
                return Path(os.fsdecode(mount.point))
    except OSError:
        pass
    return None


def file_info(descriptor: int) -> dict[str, str]:
    """What the system says of an open file, such as `mnt_id` and `ino`; raises OSError."""
    text = (_PROC / "fdinfo" / str(descriptor)).read_text("ascii", "replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def mount_of(info: Mapping[str, str]) -> Mount | None:
    """The mount of the open file that has this `file_info`; raises OSError."""
    number = info.get("mnt_id")
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
            point=_ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), fields[4]),
            kind=source.partition(b" ")[0].decode("utf-8", "replace"),
        )
