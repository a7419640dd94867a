"""Renaming that replaces nothing, and exchanging two names: renameat2 of Linux, or the nearest."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Final

EXISTS: Final = frozenset((errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR))
"""Something has the name already."""
# What kernels, file systems and sandboxes say that do not know a way to rename, or not for these
# two; where it is a matter of rights, the plain rename that follows says the same.
UNKNOWN: Final = frozenset(
    (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.ENOTTY)
)

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
# Numbers of renameat2, for a C library that has no function for it.
_SYSCALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}


def rename_new(source: Path, target: Path) -> None:
    """Rename a file or folder to a name that nothing has; raises FileExistsError, OSError."""
    try:
        _renameat2(source, target, _NOREPLACE)
        return
    except OSError as error:
        if error.errno in EXISTS:
            raise _exists(target) from None
        if error.errno not in UNKNOWN:
            raise
    if os.path.lexists(target):
        raise _exists(target)
    if not source.is_dir():
        try:
            # Unlike a rename, a link takes no name that another process took meanwhile.
            os.link(source, target, follow_symlinks=False)
            source.unlink()
            return
        except FileExistsError:
            raise _exists(target) from None
        except OSError as error:
            if error.errno not in (*UNKNOWN, errno.EMLINK):
                raise
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in EXISTS:
            raise _exists(target) from None
        raise


def exchange(one: Path, other: Path) -> None:
    """Let two files or folders have each other's name, in one step; raises OSError.

    EINVAL, ENOSYS or EXDEV where kernel, file system or layer cannot.
    """
    _renameat2(one, other, _EXCHANGE)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """renameat2(2); raises OSError, ENOSYS where there is none."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))
    import ctypes

    # As every other rename is told to who watches this process.
    sys.audit("os.rename", os.fspath(source), os.fspath(target), -1, -1)
    library = ctypes.CDLL(None, use_errno=True)
    words = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
    if hasattr(library, "renameat2"):
        failed = library.renameat2(*words, ctypes.c_uint(flags))
    else:
        number = _SYSCALLS.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))
        failed = library.syscall(ctypes.c_long(number), *words, ctypes.c_uint(flags))
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def _exists(place: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
