"""What a failed call of the operating system is told as: the one place that maps errors of files.

Such an error is never our bug.  It is told with a code, the file, the system's own words, and what
helps against it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.errors import AotcError

FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""The disk is full, or this user's part of it."""

_MENDS: Final = (
    ((errno.EROFS,), "The file system is read-only there: name another place."),
    (
        (errno.EFBIG,),
        "Raise the limit on the size of files (ulimit -f), or name a place whose file system holds "
        "files of this size.",
    ),
    ((errno.ENAMETOOLONG,), "Choose a shorter name: file systems take 255 bytes of one at most."),
    (
        (errno.EMFILE, errno.ENFILE),
        "Raise the limit on open files (ulimit -n), or close programs that hold many.",
    ),
    ((errno.ELOOP,), "Links lead in a circle there, or one stands where none may: name the file."),
    ((errno.ENOTDIR,), "Something on the way is a file and no folder: correct the path."),
    ((errno.EISDIR,), "There is a folder: name a file."),
    (
        (errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV),
        "The disk or the network file system fails: see the kernel's log, or name another place.",
    ),
    ((errno.EBUSY,), "It is a mount point, or in use: name a place within it, or another one."),
    ((errno.EXDEV,), "It lies on another file system or layer: name a place that is on one."),
    (
        (errno.EACCES, errno.EPERM),
        "This user may not: change the rights of the file or of a folder above it, run as its "
        "owner, or name another place.",
    ),
)
_FIX: Final = {number: text for numbers, text in _MENDS for number in numbers}

# Variables that name the folders of a user, with which somebody else's home is told.
_OF_USERS: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR")


def is_full(error: BaseException) -> bool:
    """Whether a call failed for want of space."""
    return isinstance(error, OSError) and error.errno in FULL


def said(error: OSError) -> str:
    """The system's own words; never empty."""
    return error.strerror or str(error) or type(error).__name__


def fix(error: OSError) -> str:
    """What helps; empty where the code's own fix says it."""
    text = _FIX.get(error.errno or 0, "")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        for variable in _OF_USERS:
            if _is_below(error.filename, os.environ.get(variable, "")):
                text += f" {variable} leads there: have it name a folder of this user's."
                break
    return text


def cannot_write(error: OSError, what: str, where: str, *, instead: str = "") -> AotcError:
    """AOTC-I018 where the disk is full, else AOTC-I026; `what` says what cannot be written.

    `instead` is what helps whatever the reason, beside what helps against this one.
    """
    if is_full(error):
        return AotcError("AOTC-I018", what, where=where, found=said(error))
    text = _both(fix(error), instead)
    return AotcError("AOTC-I026", what, where=where, found=said(error), fix=text)


def cannot_read(error: OSError, what: str, where: str) -> AotcError:
    """AOTC-I001 for a file that cannot be read; `what` says what cannot be read."""
    return AotcError("AOTC-I001", f"{what}: {said(error)}", where=where, fix=fix(error))


def cannot_use(
    error: OSError, what: str, where: str, code: str, *, full: str, instead: str
) -> AotcError:
    """`code` for a folder that a cache or a store has; `full` says it where there is no room."""
    if is_full(error):
        return AotcError(code, full, where=where)
    text = _both(fix(error), instead)
    return AotcError(code, f"{what}: {said(error)}", where=where, fix=text)


def unforeseen(error: BaseException, where: str = "") -> AotcError | None:
    """An error of the operating system that nobody caught; None for what is a bug of ours.

    `where` is for an error that names no file.
    AOTC-I018 where the disk is full, I027 for a path that no file can have, else I043.
    """
    if isinstance(error, OSError) and not isinstance(error, io.UnsupportedOperation):
        return refusal_of(error, where)
    if is_no_path(error):
        return AotcError(
            "AOTC-I027",
            "a path holds what no name of a file can: a NUL byte, or half a character",
            found=_object(error),
            fix="Correct the path.",
        )
    return None


def refusal_of(error: OSError, where: str = "") -> AotcError:
    """AOTC-I018 or I043 for a failed call; `where` is for one that names no file."""
    where = _name(error.filename) or where
    if is_full(error):
        return AotcError("AOTC-I018", "no space left", where=where, found=said(error))
    if error.errno == errno.ENOENT and not where.startswith(os.sep) and _is_nowhere():
        return AotcError(
            "AOTC-I043",
            "the current folder is gone",
            where=where,
            found=said(error),
            fix="Change to a folder that exists, and run the command there.",
        )
    what = f"the operating system refused a step: {said(error)}"
    if error.filename2 is not None:
        what += f" (to {_name(error.filename2)})"
    return AotcError("AOTC-I043", what, where=where, fix=fix(error))


@contextlib.contextmanager
def told(where: str = "") -> Iterator[None]:
    """Have what the operating system refuses within raised as what `unforeseen` makes of it."""
    try:
        yield
    except (OSError, ValueError) as error:
        refused = unforeseen(error, where)
        if refused is None:
            raise
        raise refused from error


def is_no_path(error: BaseException) -> bool:
    """Whether Python refused a path before the operating system saw it."""
    if isinstance(error, UnicodeEncodeError):
        return error.reason == "surrogates not allowed"
    return isinstance(error, ValueError) and str(error).startswith("embedded null")


def _both(*texts: str) -> str:
    return " ".join(text for text in texts if text)


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - whether it is there is all that is asked
    except OSError:
        return True
    return False


def _is_below(name: object, folder: str) -> bool:
    if not isinstance(name, str | os.PathLike) or not os.path.isabs(folder):  # noqa: PTH117
        return False
    return Path(os.fspath(name)).is_relative_to(folder)


def _name(name: object) -> str:
    if name is None:
        return ""
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)


def _object(error: BaseException) -> str:
    return repr(error.object)[:200] if isinstance(error, UnicodeEncodeError) else ""
