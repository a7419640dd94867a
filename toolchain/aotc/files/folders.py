"""Folders that we make: of the mode that is meant, whatever the umask says.

What is one user's own (keys, configuration, state, caches, a store of their own) is `PRIVATE`;
what others are to read (a store that several users load from) is `SHARED`.  What a user asks for
as output has the mode that their umask gives it, and is not made here.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o700
SHARED: Final = 0o755

# To open a folder, and no link to one.
FOLDER: Final = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def make_folder(path: Path, mode: int = PRIVATE) -> None:
    """Make a folder, and those above it that are missing, each with exactly this mode.

    What is there stays as it is.  Raises OSError.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, mode)
    make_below(path, mode)


def make_below(path: str | Path, mode: int, *, at: int | None = None) -> bool:
    """Make one folder, below the open folder `at` if one is given; False where it is there.

    Raises OSError, also where something else than a folder has the name.
    """
    try:
        os.mkdir(path, mode & 0o777, dir_fd=at)
    except FileExistsError:
        if stat.S_ISDIR(os.stat(path, dir_fd=at).st_mode):
            return False
        raise
    change_mode(path, mode, at=at)
    return True


def is_others(folder: Path) -> bool:
    """Whether a folder, or a link to it, is neither this user's nor root's.

    Its owner may put there what they like, links too: so it is where root runs with a home of
    somebody else's.  Raises OSError.
    """
    if not hasattr(os, "geteuid"):
        return False
    return not {folder.lstat().st_uid, folder.stat().st_uid} <= {0, os.geteuid()}


def change_mode(path: str | Path, mode: int, *, at: int | None = None) -> None:
    """Give a folder of this user's a mode, and follow no link to it; raises OSError."""
    if not hasattr(os, "fchmod") or os.open not in os.supports_dir_fd:
        os.chmod(path, mode)  # noqa: PTH101
        return
    try:
        descriptor = os.open(path, FOLDER, dir_fd=at)
    except PermissionError:
        # A folder that was made under an odd umask, or closed, is not readable.
        if not hasattr(os, "O_PATH"):
            raise
        descriptor = os.open(path, os.O_PATH | FOLDER, dir_fd=at)
        try:
            _require_own(descriptor, path)
            os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101
        finally:
            os.close(descriptor)
        return
    try:
        if stat.S_IMODE(_require_own(descriptor, path).st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _require_own(descriptor: int, path: str | Path) -> os.stat_result:
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
    return found
