"""Locks on open files (flock), with a limit on waiting, and what is mounted where.

A lock ends with the process that holds it, however it ends.  Anyone who can open a file can hold
its lock forever, so nothing here waits without a limit, and a refusal names the holder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.interruptions import stop_if_interrupted
from aotc.base.records import record

LOCK_CODE: Final = "AOTC-G041"
_HELD: Final = "another process holds the lock"
# The default limit on waiting for another process.
WAIT_SECONDS = 10.0
_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.05
_LONGEST_NAME: Final = 255
_PROC: Final = Path("/proc")
# A lock may have many readers; naming some is enough to find the others.
_NAMED_HOLDERS: Final = 3

# Blanks and backslashes in a path are written as octal digits (proc_pid_mountinfo(5)).
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder without waiting; whether the lock was taken.

    Closing the descriptor releases the lock.  Raises OSError if the file system has no locks.
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
    """As `try_lock`, but close the descriptor if the lock was not taken or an error is raised."""
    taken = False
    try:
        taken = try_lock(descriptor)
    finally:
        if not taken:
            os.close(descriptor)
    return taken


def wait_for_lock(descriptor: int, *, shared: bool = False, seconds: float | None = None) -> bool:
    """Lock an open file or folder within `seconds` (default: WAIT_SECONDS); whether it was taken.

    Raises OSError if the file system has no locks.
    """
    deadline = time.monotonic() + (WAIT_SECONDS if seconds is None else seconds)
    pause = _FIRST_PAUSE
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() >= deadline:
            return False
        stop_if_interrupted()
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
    what: str = _HELD,
) -> None:
    """Lock the open file or folder `path`, waiting up to `seconds` (default: WAIT_SECONDS).

    Raises `code`: with `what` and the holder, if known, after that time, or at once if the file
    system has no locks.
    """
    try:
        taken = wait_for_lock(descriptor, shared=shared, seconds=seconds)
    except OSError as error:
        raise AotcError(
            code,
            "the file cannot be locked",
            where=str(path),
            found=str(error.strerror),
            fix="Use a file system that has locks.",
        ) from None
    if not taken:
        raise AotcError(
            code,
            what,
            where=str(path),
            found=holder(descriptor),
            fix="Try again when that process has ended, or end it.",
        )


@contextlib.contextmanager
def locked(
    path: Path, *, seconds: float | None = None, code: str = LOCK_CODE, what: str = _HELD
) -> Iterator[None]:
    """Hold the lock of the file `path`, which is created if it is missing and stays.

    Only its owner can open it, so that nobody else can hold the lock.  Raises `code` as `lock`
    does, and OSError if the file cannot be created or opened.
    """
    descriptor = _open_lock_file(path)
    try:
        lock(descriptor, path, seconds=seconds, code=code, what=what)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def editing(path: Path, *, seconds: float | None = None) -> Iterator[None]:
    """Be the only process of ours that reads, changes and writes the file `path`.

    The lock is a separate file next to it, which is removed at the end: a file that is replaced
    cannot carry its own lock.  All links to a file share one lock.
    Raises G041 if another process does not finish in time, I018 and I026 if the folder is not
    writable.
    """
    path = _resolved(path)
    if not path.name:
        error = IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise cannot_write(error, "this is no file", str(path))
    place = path.with_name(f".{path.name}.lock")
    if len(os.fsencode(place.name)) > _LONGEST_NAME:
        place = path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}.lock")
    try:
        descriptor = _locked_file(place, path, seconds)
    except OSError as error:
        raise cannot_write(error, "cannot lock the file for a change", str(place)) from None
    try:
        yield
    finally:
        # Removed before the lock is released: the next holder then sees that the file is gone.
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                place.unlink()
        os.close(descriptor)


def holder(descriptor: int) -> str:
    """The holders of a lock on an open file, such as 'process 4711 (aotc)'; empty if unknown."""
    try:
        ours = _identities(descriptor)
        lines = (_PROC / "locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return ""
    found: dict[int, None] = {}
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF"; "->" marks one that waits.
        fields = line.split()
        if len(fields) < 6 or fields[1] != "FLOCK" or fields[5] not in ours:
            continue
        if fields[4].isdigit():
            found[int(fields[4])] = None
    names = [_process_name(pid) for pid in list(found)[:_NAMED_HOLDERS]]
    if len(found) > _NAMED_HOLDERS:
        names.append(f"{len(found) - _NAMED_HOLDERS} more")
    return ", ".join(names)


def _locked_file(place: Path, path: Path, seconds: float | None) -> int:
    """The locked lock file, opened again if its previous holder removed it meanwhile."""
    deadline = time.monotonic() + (WAIT_SECONDS if seconds is None else seconds)
    while True:
        descriptor = _open_lock_file(place)
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


def _open_lock_file(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags, 0o600)


def _resolved(path: Path) -> Path:
    """The file that a path leads to; the path itself if its folder does not exist."""
    found = Path(os.path.realpath(path))
    return found if found.parent.is_dir() else path


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _identities(descriptor: int) -> set[str]:
    """How /proc/locks may write an open file: device and inode, as from stat or from its mount.

    The two differ on file systems that show several devices (btrfs, overlayfs).
    """
    status = os.fstat(descriptor)
    major, minor = os.major(status.st_dev), os.minor(status.st_dev)
    found = {f"{major:02x}:{minor:02x}:{status.st_ino}"}
    with contextlib.suppress(OSError, KeyError, ValueError):
        info = file_info(descriptor)
        mount = mount_of(info)
        if mount is not None:
            major, minor = (int(part) for part in mount.device.split(":"))
            found.add(f"{major:02x}:{minor:02x}:{info['ino']}")
    return found


def _process_name(pid: int) -> str:
    if pid == os.getpid():
        return "this process"
    try:
        name = (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return f"process {pid}"
    # A process chooses its own name, so that it may contain anything.
    return f"process {pid} ({name if name.isprintable() else ascii(name)})"


# What is mounted where, as far as the system says.


@record(kw_only=False)
class Mount:
    """A row of /proc/self/mountinfo: number, device (`8:1`), mount point, kind of file system."""

    number: str
    device: str
    point: bytes
    kind: str


def mounted_in(folder: Path) -> Path | None:
    """A mount point that is `folder` or lies below it; None if none is known."""
    top = os.fsencode(os.path.realpath(folder))
    try:
        for mount in _mounts():
            if mount.point == top or mount.point.startswith(top + b"/"):
                return Path(os.fsdecode(mount.point))
    except OSError:
        pass
    return None


def file_info(descriptor: int) -> dict[str, str]:
    """What the system says of an open file, such as `mnt_id` and `ino`; raises OSError."""
    text = (_PROC / "self" / "fdinfo" / str(descriptor)).read_text("ascii", "replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def mount_of(info: Mapping[str, str]) -> Mount | None:
    """The mount of the open file that has this `file_info`; raises OSError."""
    number = info.get("mnt_id")
    return next((mount for mount in _mounts() if mount.number == number), None)


def _mounts() -> Iterator[Mount]:
    for row in (_PROC / "self" / "mountinfo").read_bytes().splitlines():
        mount, _, source = row.partition(b" - ")
        fields = mount.split(b" ")
        if len(fields) < 5:
            continue
        yield Mount(
            number=fields[0].decode("ascii", "replace"),
            device=fields[2].decode("ascii", "replace"),
            point=_ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), fields[4]),
            kind=source.partition(b" ")[0].decode("utf-8", "replace"),
        )
