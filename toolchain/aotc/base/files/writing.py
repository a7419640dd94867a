"""Writing files atomically: a file is written completely or not at all.

A file is written hidden and then takes its name in one step.  A reader finds the old file or the
new one, and a failure leaves the old one.  If the system supports it, the file has no name until it
is complete (O_TMPFILE).  What a killed process leaves in other cases is not locked, and the next
write into the folder removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import Final

from aotc.base.files import confined
from aotc.base.files.failures import cannot_write
from aotc.base.files.locks import try_lock
from aotc.base.files.replacing import rename_new

# A draft has a name of its own, because the file's name may have the maximum length already.
PREFIX: Final = ".aotc-new-"
_WRITE: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NEW: Final = _WRITE | os.O_CREAT | os.O_EXCL
_LOOK: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_MAX_LINKS = 40
# Errors of a folder that takes no new file, or of a mount point, which cannot be replaced.
_IN_PLACE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
# Errors where a file cannot be made without a name, or not given one through /proc.
_NEEDS_NAME: Final = (
    *(errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EXDEV),
    *(errno.EPERM, errno.ELOOP),
)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file atomically; one that exists is replaced and keeps its mode.

    `mode`, limited by the umask, is for a new file.  A link is followed.  What is not a regular
    file (a device, a pipe, `/dev/stdout`) is written to and never replaced.  A file that cannot be
    replaced, because its folder is not writable or it is a mount point, is written in place: only
    then a failure can leave a part.  With `durable` it is on the disk afterwards.
    Raises OSError, and AOTC-I052 for a confined path that leads over a link or to no regular file.
    """
    if confined.is_confined(path):
        _write_confined(path, data, mode, durable=durable)
        return
    number = _descriptor_in(path)
    if number is not None:
        if sys.stdout is not None:
            sys.stdout.flush()
        _write_all(number, data)
        return
    place = Path(os.path.realpath(path))
    try:
        # A file that this user may not write is not replaced either.
        descriptor = os.open(place, _WRITE)
    except FileNotFoundError:
        _write_and_name(place, data, mode, new=False, durable=durable)
        return
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            _write_all(descriptor, data)
            return
        try:
            _write_and_name(place, data, mode, new=False, durable=durable, like=found)
        except OSError as error:
            if error.errno not in _IN_PLACE:
                raise
            os.ftruncate(descriptor, 0)
            try:
                _write_all(descriptor, data, durable=durable)
            except OSError as failed:
                raise _error_about(failed, place) from None
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, what: str = "file") -> None:
    """Write UTF-8 text atomically; raises AOTC-I018 (full disk) and I026."""
    try:
        write_atomically(path, text.encode("utf-8"))
    except OSError as error:
        raise cannot_write(error, f"cannot write the {what}", str(path)) from None


def _write_confined(path: Path, data: bytes, mode: int, *, durable: bool) -> None:
    try:
        descriptor = confined.open_confined(path, _WRITE)
    except FileNotFoundError:
        descriptor = None
    try:
        like = os.fstat(descriptor) if descriptor is not None else None
        found = confined.folder_of(path)
        assert found is not None
        folder, name = found
        try:
            # The folder itself, whatever its path leads to by now.
            place = Path(f"/proc/self/fd/{folder}/{name}")
            _write_and_name(place, data, mode, new=False, durable=durable, like=like)
        except OSError as error:
            raise _error_about(error, path) from None
        finally:
            os.close(folder)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def write_new(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file atomically if nothing has its name; of several processes, one succeeds.

    Raises FileExistsError if anything has the name, even a link; and OSError.
    """
    _write_and_name(path, data, mode, new=True, durable=durable)


def is_written_through(path: Path) -> bool:
    """Whether `write_atomically` writes to what exists instead of replacing it; raises OSError."""
    if _descriptor_in(path) is not None:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk; raises OSError."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, prefix: str = PREFIX) -> None:
    """Remove files with this prefix that no process is writing, as far as possible."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(prefix)]
        for name in names:
            with contextlib.suppress(OSError):
                _remove_unlocked(folder / name)


def write_hidden(path: Path, data: bytes, *, second_name: Path, new: bool) -> bool:
    """Write a durable file that is visible only when complete; False if the system cannot.

    It cannot if the system or the file system has no files without a name; nothing was written
    then.  If `path` exists, the complete new file has the name `second_name` for a moment.
    Raises FileExistsError if `path` exists and must be `new`, and OSError.
    """
    descriptor: int | None = None
    try:
        descriptor = _unnamed_file(path, data, 0o666, None, durable=True)
        if descriptor is None or not _give_name(descriptor, path, second_name, new=new):
            return False
    except OSError as error:
        raise _error_about(error, path) from None
    finally:
        if descriptor is not None:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            second_name.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def _write_and_name(
    place: Path,
    data: bytes,
    mode: int,
    *,
    new: bool,
    durable: bool,
    like: os.stat_result | None = None,
) -> None:
    """Write a file without a name, or under a draft's name, and then give it its own."""
    second_name = place.parent / f"{PREFIX}{os.urandom(8).hex()}"
    descriptor: int | None = None
    try:
        descriptor = _unnamed_file(place, data, mode, like, durable=durable)
        if descriptor is None or not _give_name(descriptor, place, second_name, new=new):
            _write_draft_and_rename(place, data, mode, like, new=new, durable=durable)
    except OSError as error:
        raise _error_about(error, place) from None
    finally:
        if descriptor is not None:
            os.close(descriptor)
        remove_leftovers(place.parent)
    if durable:
        sync_folder(place.parent)


def _unnamed_file(
    place: Path, data: bytes, mode: int, like: os.stat_result | None, *, durable: bool
) -> int | None:
    """A complete, locked file that has no name yet; None if the system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(place.parent, _WRITE | os.O_TMPFILE, mode)
    except OSError as error:
        if error.errno in _NEEDS_NAME and place.parent.is_dir():
            return None
        raise
    try:
        _mark_in_use(descriptor)
        _write_all(descriptor, data, like, durable=durable)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _give_name(descriptor: int, place: Path, second_name: Path, *, new: bool) -> bool:
    """Name an unnamed file; False if the system cannot.  Raises FileExistsError if `new`."""
    try:
        _link(descriptor, place)
    except FileExistsError:
        if new:
            raise
        _link(descriptor, second_name)
        second_name.replace(place)
    except OSError as error:
        if error.errno in _NEEDS_NAME:
            return False
        raise
    return True


def _error_about(error: OSError, place: Path) -> OSError:
    """The error with the path that was to be written instead of a temporary one."""
    return OSError(error.errno, error.strerror, str(place))


def _link(descriptor: int, place: Path) -> None:
    # os.link follows the link in /proc only if it is given the descriptor of a folder.
    folder = os.open(place.parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    try:
        os.link(f"/proc/self/fd/{descriptor}", place.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _write_draft_and_rename(
    place: Path,
    data: bytes,
    mode: int,
    like: os.stat_result | None,
    *,
    new: bool,
    durable: bool,
) -> None:
    draft, descriptor = _locked_draft(place, mode)
    try:
        _write_all(descriptor, data, like, durable=durable)
        if new:
            rename_new(draft, place)
        else:
            draft.replace(place)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        os.close(descriptor)


def _locked_draft(place: Path, mode: int) -> tuple[Path, int]:
    """A new draft in the same folder and its descriptor, locked."""
    for _ in range(8):
        draft = place.parent / f"{PREFIX}{os.urandom(8).hex()}"
        descriptor = os.open(draft, _NEW, mode)
        # A process that removes leftovers may have removed it before it was locked.
        if _mark_in_use(descriptor) and draft.exists():
            return draft, descriptor
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _write_all(
    descriptor: int, data: bytes, like: os.stat_result | None = None, *, durable: bool = False
) -> None:
    """Write all of `data`, with the owner and mode of the file that is replaced, if any."""
    if like is not None and hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if durable:
        os.fsync(descriptor)


def _mark_in_use(descriptor: int) -> bool:
    """Lock an unfinished file; False if another process holds its lock."""
    if sys.platform == "win32":
        return True
    try:
        return try_lock(descriptor)
    except OSError:
        return True  # A file system without locks: nothing there is removed as a leftover.


def _remove_unlocked(path: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(path, _LOOK)
    try:
        if not try_lock(descriptor):
            return
        found = os.fstat(descriptor)
        if os.path.samestat(found, path.lstat()) and stat.S_ISREG(found.st_mode):
            path.unlink()
    finally:
        os.close(descriptor)


def _descriptor_in(path: Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout names."""
    place = os.fspath(path)
    for _ in range(_MAX_LINKS):
        folder, name = os.path.split(place)
        if name.isdigit() and os.path.realpath(folder) == f"/proc/{os.getpid()}/fd":
            return int(name)
        try:
            place = os.path.join(folder, os.readlink(place))  # noqa: PTH115, PTH118 - as it stands
        except OSError:
            return None
    return None
