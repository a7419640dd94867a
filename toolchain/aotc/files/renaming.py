"""Renaming without replacing, and exchanging two names: renameat2 of Linux, or a substitute."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Final

EXISTS: Final = frozenset((errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR))
"""Errors that say that something has the name already."""
# Errors of kernels, file systems and sandboxes without this kind of rename.  If permissions are the
# cause, the plain rename that follows fails with the same error.
UNKNOWN: Final = frozenset(
    (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.ENOTTY)
)

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
# Numbers of renameat2, for C libraries without a function for it.
_SYSCALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}


def rename_new(source: Path, target: Path) -> None:
    """Rename a file or folder to an unused name; raises FileExistsError, OSError."""
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
            # Unlike a rename, a link never replaces a name that another process took meanwhile.
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
    """Exchange the names of two files or folders in one step; raises OSError.

    Its errno is EINVAL, ENOSYS or EXDEV if kernel, file system or layer do not support it.
    """
    _renameat2(one, other, _EXCHANGE)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """Call renameat2(2); raises OSError, with ENOSYS if the system does not have it."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))
    import ctypes

    # Every other rename raises this audit event too.
    sys.audit("os.rename", os.fspath(source), os.fspath(target), -1, -1)
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
    if hasattr(library, "renameat2"):
        failed = library.renameat2(*arguments, ctypes.c_uint(flags))
    else:
        number = _SYSCALLS.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))
        failed = library.syscall(ctypes.c_long(number), *arguments, ctypes.c_uint(flags))
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def _exists(place: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
