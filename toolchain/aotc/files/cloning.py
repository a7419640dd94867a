"""Files that share their blocks, where the file system lets two files do so."""

from __future__ import annotations

from typing import Final, Protocol

# ioctl of Linux by which a file shares another's blocks until one is written (ioctl_ficlone(2)).
_FICLONE: Final = 0x40049409


class Opened(Protocol):
    """What may have a descriptor; `fileno` raises `OSError` where it has none."""

    def fileno(self) -> int:
        """The descriptor."""


def share_blocks(source: Opened | int, target: int) -> bool:
    """Give one open file the content of another without a copy; False where that cannot be.

    It cannot where `source` is no file of its own, but a member of a packed one.
    """
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source if isinstance(source, int) else source.fileno())
    except OSError:
        return False
    return True
