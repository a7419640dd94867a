"""Copying by sharing blocks between files, on file systems that support it."""

from __future__ import annotations

from typing import Final, Protocol

# The Linux ioctl that makes a file share another's blocks until one is written (ioctl_ficlone(2)).
_FICLONE: Final = 0x40049409


class Opened(Protocol):
    """An open file; `fileno` raises `OSError` if it has no descriptor."""

    def fileno(self) -> int:
        """The file descriptor."""


def share_blocks(source: Opened | int, target: int) -> bool:
    """Give an open file the content of another without copying; False if that is not possible.

    It is not possible if `source` is a member of a packed artifact instead of a file of its own.
    """
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source if isinstance(source, int) else source.fileno())
    except OSError:
        return False
    return True
