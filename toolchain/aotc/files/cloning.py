"""Files that share their blocks, where the file system lets two files do so."""

from __future__ import annotations

from typing import Final

# ioctl of Linux by which a file shares another's blocks until one is written (ioctl_ficlone(2)).
_FICLONE: Final = 0x40049409


def share_blocks(source: int, target: int) -> bool:
    """Give one open file the content of another without a copy; False where that cannot be."""
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
