"""Files that are written whole or not at all.

A file is written where nobody sees it, and then takes its name in one step: a reader finds the
old file or the new one, and what fails leaves what was there.  Where the system can, it has no
name until it is whole (O_TMPFILE); what a killed process leaves all the same is locked by nobody,
and the next write into the folder removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import Final

from aotc.files.locking import try_lock
from aotc.files.renaming import rename_new

# A name of its own, as the file's could be as long as the file system takes.
PREFIX: Final = ".aotc-new-"
_WRITE: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NEW: Final = _WRITE | os.O_CREAT | os.O_EXCL
_LOOK: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_MOST_LINKS = 40
# With these a folder takes no file beside the one that is there, or a mount point no other.
_IN_PLACE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
# A file without a name is not for every kernel and file system, and gets its name by /proc.
_NEEDS_NAME: Final = (
    *(errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EXDEV),
    *(errno.EPERM, errno.ELOOP),
)


def write_whole(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file, over one that may be there and whose mode stays; else `mode` and umask say.

    A link is followed.  What is no plain file (a device, a pipe, `/dev/stdout`) is written to and
    never replaced.  A file whose folder takes no other, or that is a mount point, is written in
    place: of such a one alone, half may be left.  With `durable` it is on the disk afterwards.
    Raises OSError.
    """
    number = _descriptor(path)
    if number is not None:
        if sys.stdout is not None:
            sys.stdout.flush()
        _fill(number, data)
        return
    place = Path(os.path.realpath(path))
    try:
        # A file that may not be written is not replaced either.
        descriptor = os.open(place, _WRITE)
    except FileNotFoundError:
        _put(place, data, mode, new=False, durable=durable)
        return
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            _fill(descriptor, data)
            return
        try:
            _put(place, data, mode, new=False, durable=durable, like=found)
        except OSError as error:
            if error.errno not in _IN_PLACE:
                raise
            os.ftruncate(descriptor, 0)
            try:
                _fill(descriptor, data, durable=durable)
            except OSError as failed:
                raise _named_after(failed, place) from None
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file where nothing is; of several processes that do so at once, one succeeds.

    Raises FileExistsError where something is, a link too; and OSError.
    """
    _put(path, data, mode, new=True, durable=durable)


def is_written_through(path: Path) -> bool:
    """Whether `write_whole` writes to what is there and replaces nothing; raises OSError."""
    if _descriptor(path) is not None:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk; raises OSError."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, prefix: str = PREFIX) -> None:
    """Remove files of this prefix that no process writes any more, as far as that goes."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as found:
            names = [each.name for each in found if each.name.startswith(prefix)]
        for name in names:
            with contextlib.suppress(OSError):
                _remove_unlocked(folder / name)


def write_unseen(path: Path, data: bytes, *, beside: Path, new: bool) -> bool:
    """Write a durable file of which nobody sees anything before it is whole; False if none can.

    That is so where the system or the file system has no files without a name; then nothing was
    written.  One that replaces another is seen as `beside` as well for a moment, whole already.
    Raises FileExistsError where something is and it must be `new`, and OSError.
    """
    descriptor: int | None = None
    try:
        descriptor = _nameless(path, data, 0o666, None, durable=True)
        if descriptor is None or not _named(descriptor, path, beside, new=new):
            return False
    except OSError as error:
        raise _named_after(error, path) from None
    finally:
        if descriptor is not None:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def _put(
    place: Path,
    data: bytes,
    mode: int,
    *,
    new: bool,
    durable: bool,
    like: os.stat_result | None = None,
) -> None:
    """Write a file without a name, or under one beside its own, and give it its own."""
    beside = place.parent / f"{PREFIX}{os.urandom(8).hex()}"
    descriptor: int | None = None
    try:
        descriptor = _nameless(place, data, mode, like, durable=durable)
        if descriptor is None or not _named(descriptor, place, beside, new=new):
            _put_beside(place, data, mode, like, new=new, durable=durable)
    except OSError as error:
        raise _named_after(error, place) from None
    finally:
        if descriptor is not None:
            os.close(descriptor)
        remove_leftovers(place.parent)
    if durable:
        sync_folder(place.parent)


def _nameless(
    place: Path, data: bytes, mode: int, like: os.stat_result | None, *, durable: bool
) -> int | None:
    """A whole file that has no name yet, locked; None where the system has no such thing."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(place.parent, _WRITE | os.O_TMPFILE, mode)
    except OSError as error:
        if error.errno in _NEEDS_NAME and place.parent.is_dir():
            return None
        raise
    try:
        _lock(descriptor)
        _fill(descriptor, data, like, durable=durable)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _named(descriptor: int, place: Path, beside: Path, *, new: bool) -> bool:
    """Give a file its name; False where the system cannot.  Raises FileExistsError if `new`."""
    try:
        _link(descriptor, place)
    except FileExistsError:
        if new:
            raise
        _link(descriptor, beside)
        beside.replace(place)
    except OSError as error:
        if error.errno in _NEEDS_NAME:
            return False
        raise
    return True


def _named_after(error: OSError, place: Path) -> OSError:
    """The error as one of the file that was to be written, and of no name that it had meanwhile."""
    return OSError(error.errno, error.strerror, str(place))


def _link(descriptor: int, place: Path) -> None:
    # Only with a descriptor of a folder does os.link follow the link that /proc has.
    folder = os.open(place.parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    try:
        os.link(f"/proc/self/fd/{descriptor}", place.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _put_beside(
    place: Path,
    data: bytes,
    mode: int,
    like: os.stat_result | None,
    *,
    new: bool,
    durable: bool,
) -> None:
    beside, descriptor = _beside(place, mode)
    try:
        _fill(descriptor, data, like, durable=durable)
        if new:
            rename_new(beside, place)
        else:
            beside.replace(place)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        os.close(descriptor)


def _beside(place: Path, mode: int) -> tuple[Path, int]:
    """A new file beside another and its descriptor, locked."""
    for _ in range(8):
        beside = place.parent / f"{PREFIX}{os.urandom(8).hex()}"
        descriptor = os.open(beside, _NEW, mode)
        # Who removes leftovers may have taken it for one before it was locked.
        if _lock(descriptor) and beside.exists():
            return beside, descriptor
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _fill(
    descriptor: int, data: bytes, like: os.stat_result | None = None, *, durable: bool = False
) -> None:
    """Write all of it, with the owner and mode of the file that is replaced, where there is one."""
    if like is not None and hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if durable:
        os.fsync(descriptor)


def _lock(descriptor: int) -> bool:
    """Mark an unfinished file as one that somebody writes; False where another has its lock."""
    if sys.platform == "win32":
        return True
    try:
        return try_lock(descriptor)
    except OSError:
        return True  # A file system without locks, where nothing is taken for a leftover.


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


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout names."""
    place = os.fspath(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(place)
        if name.isdigit() and os.path.realpath(folder) == f"/proc/{os.getpid()}/fd":
            return int(name)
        try:
            place = os.path.join(folder, os.readlink(place))  # noqa: PTH115, PTH118 - as it stands
        except OSError:
            return None
    return None
