"""Errors of file operations as refusals with a code: the one place that maps them.

An error of the operating system is not a bug of ours.  The refusal states a code, the file, the
system's own message and what helps.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError

FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Error numbers for a full disk, or a user's exhausted quota."""

_FIXES: Final = (
    ((errno.EROFS,), "The file system is read-only there: choose another location."),
    (
        (errno.EFBIG,),
        "Raise the limit on the size of files (ulimit -f), or choose a location whose file system "
        "holds files of this size.",
    ),
    ((errno.ENAMETOOLONG,), "Choose a shorter name: file systems take at most 255 bytes."),
    (
        (errno.EMFILE, errno.ENFILE),
        "Raise the limit on open files (ulimit -n), or close programs that hold many.",
    ),
    (
        (errno.ELOOP,),
        "The path has a circle of links, or a link where none is allowed: name the file.",
    ),
    ((errno.ENOTDIR,), "A part of the path is a file, not a folder: correct the path."),
    ((errno.EISDIR,), "There is a folder: name a file."),
    (
        (errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV),
        "The disk or the network file system fails: see the kernel's log, or choose another "
        "location.",
    ),
    ((errno.EBUSY,), "It is a mount point, or in use: name a folder within it, or another one."),
    ((errno.EXDEV,), "It is on another file system or layer: name a location that is on one."),
    (
        (errno.EACCES, errno.EPERM),
        "This user lacks the permission: change the mode of the file or of a folder above it, run "
        "as its owner, or choose another location.",
    ),
)
_FIX_BY_ERRNO: Final = {number: text for numbers, text in _FIXES for number in numbers}

# Variables that name a user's folders: the fix mentions one that leads to somebody else's home.
_USER_VARIABLES: Final = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR")


def is_full(error: BaseException) -> bool:
    """Whether a call failed because the disk or the user's quota is full."""
    return isinstance(error, OSError) and error.errno in FULL


def system_message(error: OSError) -> str:
    """The operating system's message for an error; never empty."""
    return error.strerror or str(error) or type(error).__name__


def fix_for(error: OSError) -> str:
    """What helps against an error; empty if the fix of the code already says it."""
    text = _FIX_BY_ERRNO.get(error.errno or 0, "")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        for variable in _USER_VARIABLES:
            if _is_below(error.filename, os.environ.get(variable, "")):
                text += f" {variable} leads there: have it name a folder of this user's."
                break
    return text


def cannot_write(error: OSError, what: str, where: str, *, further_fix: str = "") -> AotcError:
    """The refusal for a failed write: AOTC-I018 if the disk is full, else AOTC-I026.

    `what` says what cannot be written.  `further_fix` is added to the fix for this error.
    """
    if is_full(error):
        return AotcError("AOTC-I018", what, where=where, found=system_message(error))
    text = _joined(fix_for(error), further_fix)
    return AotcError("AOTC-I026", what, where=where, found=system_message(error), fix=text)


def cannot_read(error: OSError, what: str, where: str) -> AotcError:
    """The refusal AOTC-I001 for a failed read; `what` says what cannot be read."""
    return AotcError(
        "AOTC-I001", f"{what}: {system_message(error)}", where=where, fix=fix_for(error)
    )


def cannot_use(
    error: OSError, what: str, where: str, code: str, *, when_full: str, further_fix: str
) -> AotcError:
    """The refusal `code` for a cache or store folder; `when_full` is its text for a full disk."""
    if is_full(error):
        return AotcError(code, when_full, where=where)
    text = _joined(fix_for(error), further_fix)
    return AotcError(code, f"{what}: {system_message(error)}", where=where, fix=text)


def uncaught_refusal(error: BaseException, where: str = "") -> AotcError | None:
    """The refusal for an error of the operating system that nothing caught; None for our bugs.

    `where` is used if the error names no file.  The code is AOTC-I018 if the disk is full, I027
    for a path that no file can have, else I043.
    """
    if isinstance(error, OSError) and not isinstance(error, io.UnsupportedOperation):
        return refusal_of(error, where)
    if is_invalid_path(error):
        return AotcError(
            "AOTC-I027",
            "a path contains what no file name can: a NUL byte, or an incomplete character",
            found=repr(error.object)[:200] if isinstance(error, UnicodeEncodeError) else "",
            fix="Correct the path.",
        )
    return None


def refusal_of(error: OSError, where: str = "") -> AotcError:
    """The refusal AOTC-I018 or I043 for a failed call; `where` is used if it names no file."""
    where = _path_text(error.filename) or where
    if is_full(error):
        return AotcError("AOTC-I018", "no space left", where=where, found=system_message(error))
    if error.errno == errno.ENOENT and not where.startswith(os.sep) and _is_current_folder_gone():
        return AotcError(
            "AOTC-I043",
            "the current folder no longer exists",
            where=where,
            found=system_message(error),
            fix="Change to a folder that exists, and run the command there.",
        )
    what = f"the operating system refused a step: {system_message(error)}"
    if error.filename2 is not None:
        what += f" (to {_path_text(error.filename2)})"
    return AotcError("AOTC-I043", what, where=where, fix=fix_for(error))


@contextlib.contextmanager
def translated_errors(where: str = "") -> Iterator[None]:
    """Raise errors of the operating system within as the refusals of `uncaught_refusal`."""
    try:
        yield
    except (OSError, ValueError) as error:
        refused = uncaught_refusal(error, where)
        if refused is None:
            raise
        raise refused from error


def is_invalid_path(error: BaseException) -> bool:
    """Whether Python refused a path before it reached the operating system."""
    if isinstance(error, UnicodeEncodeError):
        return error.reason == "surrogates not allowed"
    return isinstance(error, ValueError) and str(error).startswith("embedded null")


def _joined(*texts: str) -> str:
    return " ".join(text for text in texts if text)


def _is_current_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - only whether it exists matters
    except OSError:
        return True
    return False


def _is_below(name: object, folder: str) -> bool:
    if not isinstance(name, str | os.PathLike) or not os.path.isabs(folder):  # noqa: PTH117
        return False
    return Path(os.fspath(name)).is_relative_to(folder)


def _path_text(name: object) -> str:
    if name is None:
        return ""
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)
