"""Locks on open files (flock): waited for until a limit, and refused with the name of the holder.

Such a lock ends with the process that holds it, however it ends.  Whoever may open a file may hold
its lock for ever, so nobody here waits without a limit.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.failures import cannot_write

LOCK_CODE: Final = "AOTC-G041"
# How long another process is waited for; who needs another limit states it.
WAIT_SECONDS = 10.0
_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.05
_LONGEST_NAME: Final = 255
_PROC: Final = Path("/proc")
# Readers may be many; naming some is enough to find the others.
_NAMED_HOLDERS: Final = 3


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder if nobody else's lock forbids it now; whether it was to be had.

    Closing the descriptor gives the lock back.  Raises OSError where the file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def lock_or_close(descriptor: int) -> bool:
    """As `try_lock`; where it was not to be had, the descriptor is closed, whatever is raised."""
    taken = False
    try:
        taken = try_lock(descriptor)
    finally:
        if not taken:
            os.close(descriptor)
    return taken


def wait(descriptor: int, *, shared: bool = False, seconds: float | None = None) -> bool:
    """Lock an open file or folder, waiting `seconds` (WAIT_SECONDS); whether it was to be had.

    Raises OSError where the file system has no locks.
    """
    deadline = time.monotonic() + (WAIT_SECONDS if seconds is None else seconds)
    pause = _FIRST_PAUSE
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return True


def lock(
    descriptor: int,
    path: Path,
    *,
    shared: bool = False,
    seconds: float | None = None,
    code: str = LOCK_CODE,
    what: str = "another process holds the lock",
) -> None:
    """Lock an open file or folder, `path`, waiting `seconds` (WAIT_SECONDS) for who holds it.

    Raises `code`: with `what` and the holder, where one can be named, once the time is over, and at
    once where the file system has no locks.
    """
    try:
        taken = wait(descriptor, shared=shared, seconds=seconds)
    except OSError as error:
        raise AotcError(
            code,
            "the file cannot be locked",
            where=str(path),
            found=str(error.strerror),
            fix="Use a file system that has locks.",
        ) from None
    if not taken:
        raise held(descriptor, path, code=code, what=what)


def held(
    descriptor: int,
    path: Path,
    *,
    code: str = LOCK_CODE,
    what: str = "another process holds the lock",
) -> AotcError:
    """The refusal for a lock that is not to be had, with who holds it where that can be seen."""
    return AotcError(
        code,
        what,
        where=str(path),
        found=holder(descriptor),
        fix="Try again when that process has ended, or end it.",
    )


@contextlib.contextmanager
def locked(
    path: Path, *, seconds: float | None = None, code: str = LOCK_CODE, what: str = ""
) -> Iterator[None]:
    """Hold the lock of the file `path`, which is made for that, and stays, where it is not there.

    It is its owner's alone, so that nobody else can sit on it.  Raises `code` as `lock` does, and
    OSError where the file cannot be made or opened.
    """
    descriptor = _open(path)
    try:
        lock(
            descriptor,
            path,
            seconds=seconds,
            code=code,
            what=what or "another process holds the lock",
        )
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def editing(path: Path, *, seconds: float | None = None) -> Iterator[None]:
    """Be the only process of ours that reads, changes and writes the file `path`.

    The lock is a file beside it, which goes with it: what is replaced cannot hold one itself.
    By whatever links it is named, it has one lock.
    Raises G041 where another process does not end, I018 and I026 where the folder takes no file.
    """
    path = _meant(path)
    place = path.with_name(f".{path.name}.lock")
    if len(os.fsencode(place.name)) > _LONGEST_NAME:
        place = path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}.lock")
    try:
        descriptor = _taken(place, path, seconds)
    except OSError as error:
        raise cannot_write(error, "cannot lock the file for a change", str(place)) from None
    try:
        yield
    finally:
        # Before the lock is given back: whoever gets it then sees that the file is gone.
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                place.unlink()
        os.close(descriptor)


def holder(descriptor: int) -> str:
    """Who holds a lock on an open file, such as 'process 4711 (aotc)'; empty where none is seen."""
    try:
        ours = _identities(descriptor)
        lines = (_PROC / "locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return ""
    found: dict[int, None] = {}
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF"; with "->" it waits for the one above.
        fields = line.split()
        if len(fields) < 6 or fields[1] != "FLOCK" or fields[5] not in ours:
            continue
        if fields[4].isdigit():
            found[int(fields[4])] = None
    names = [_process(each) for each in list(found)[:_NAMED_HOLDERS]]
    if len(found) > _NAMED_HOLDERS:
        names.append(f"{len(found) - _NAMED_HOLDERS} more")
    return ", ".join(names)


def _taken(place: Path, path: Path, seconds: float | None) -> int:
    """The open lock file, locked, and still where it was: who had it before removed theirs."""
    deadline = time.monotonic() + (WAIT_SECONDS if seconds is None else seconds)
    while True:
        descriptor = _open(place)
        try:
            lock(
                descriptor,
                place,
                seconds=max(0.0, deadline - time.monotonic()),
                what=f"another process changes {path.name}",
            )
            if sys.platform == "win32" or _leads_to(place, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags, 0o600)


def _meant(path: Path) -> Path:
    """The file that a path leads to; the path itself where it leads into no folder."""
    found = Path(os.path.realpath(path))
    return found if found.parent.is_dir() else path


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _identities(descriptor: int) -> set[str]:
    """How /proc/locks may write an open file: device and inode, as stat or as its mount has them.

    The two differ where a file system shows several devices (btrfs, overlayfs).
    """
    from aotc.files.mounts import about, mount_of

    status = os.fstat(descriptor)
    major, minor = os.major(status.st_dev), os.minor(status.st_dev)
    found = {f"{major:02x}:{minor:02x}:{status.st_ino}"}
    with contextlib.suppress(OSError, KeyError, ValueError):
        told = about(descriptor)
        mount = mount_of(told)
        if mount is not None:
            major, minor = (int(each) for each in mount.device.split(":"))
            found.add(f"{major:02x}:{minor:02x}:{told['ino']}")
    return found


def _process(pid: int) -> str:
    if pid == os.getpid():
        return "this process"
    try:
        name = (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return f"process {pid}"
    # A process chooses its own name.
    return f"process {pid} ({name if name.isprintable() else ascii(name)})"
