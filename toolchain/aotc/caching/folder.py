"""The folder of the build cache: where it is, whose it is, its lock, and half-written folders."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.locking import locked, try_lock

DEFAULT_LIMIT: Final = 10 << 30
LOCK: Final = "lock"
NEW: Final = ".new-"
OLD: Final = ".old-"
# A half-written folder this old whose lock is free was left by a process that died.
STALE_SECONDS = 60.0
# How long a prune waits for another one.
_LOCK_SECONDS = 5.0


def default_folder() -> Path:
    """$AOTC_CACHE, or aotc/build in $XDG_CACHE_HOME or ~/.cache; raises R014 with no home."""
    stated = os.environ.get("AOTC_CACHE")
    if stated:
        return Path(stated).absolute()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if cache and Path(cache).is_absolute():
        return Path(cache) / "aotc" / "build"
    try:
        return Path.home() / ".cache" / "aotc" / "build"
    except RuntimeError:
        raise AotcError("AOTC-R014", "this user has no home folder for a cache") from None


def default_limit() -> int:
    """$AOTC_CACHE_BYTES, or 10 GiB; raises R014 where the variable is no number."""
    stated = os.environ.get("AOTC_CACHE_BYTES")
    if not stated:
        return DEFAULT_LIMIT
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 15):
        raise AotcError(
            "AOTC-R014",
            "the size of the cache is no number of bytes",
            where="AOTC_CACHE_BYTES",
            expected="at most 15 digits",
            found=stated,
            mend="Set AOTC_CACHE_BYTES to a number of bytes, or not at all.",
        )
    return int(stated)


def unusable(error: OSError, place: Path) -> AotcError:
    """R014 for a failed call of the operating system, on `place` where it names no file."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = "the disk is full" if full else f"the cache: {error.strerror}"
    return AotcError("AOTC-R014", what, where=str(error.filename or place))


def is_usable(folder: Path) -> bool:
    """Whether the folder is there; raises R014 where it is, and others than this user own it.

    Whoever may write it could put files under the key of a build, with digests that fit.
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unusable(error, folder) from None
    if not stat.S_ISDIR(found.st_mode):
        raise AotcError("AOTC-R014", "the cache is no folder", where=str(folder))
    if found.st_uid != os.geteuid():
        raise AotcError(
            "AOTC-R014",
            "the cache belongs to another user",
            where=str(folder),
            expected=f"user {os.geteuid()}",
            found=f"user {found.st_uid}",
        )
    if found.st_mode & 0o022:
        raise AotcError(
            "AOTC-R014",
            "others may write the cache",
            where=str(folder),
            expected="mode 0700",
            found=f"mode {stat.S_IMODE(found.st_mode):04o}",
            mend=f"Look at what is in it, then: chmod 700 {folder}",
        )
    return True


def make(folder: Path) -> None:
    """Make the folder for this user alone where it is not there; raises R014."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(error, folder) from None
    is_usable(folder)


@contextmanager
def draft(root: Path) -> Iterator[Path]:
    """A new folder in `root` to fill and rename; locked, and removed where it was not renamed.

    Raises OSError where it cannot be made or locked.
    """
    folder, descriptor = _locked_folder(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(root: Path) -> tuple[Path, int]:
    """A new folder and its lock; one that was cleared away before it was locked is made anew."""
    for _ in range(8):
        folder = root / f"{NEW}{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        try:
            descriptor = _lock(folder)
        except FileNotFoundError:
            continue
        if descriptor is None:
            continue
        if folder.is_dir():
            return folder, descriptor
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(root))


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None where another has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if try_lock(descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Keep other prunes out of `root`; raises R014 where one does not end."""
    path = root / LOCK
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, seconds=_LOCK_SECONDS, code="AOTC-R014"))
        except OSError as error:
            raise unusable(error, path) from None
        yield


def remove(path: Path, root: Path) -> bool:
    """Take an entry out of sight by one rename, then remove it; whether it was there.

    Raises OSError where it cannot be moved.
    """
    old = root / f"{OLD}{secrets.token_hex(8)}"
    try:
        path.rename(old)
    except FileNotFoundError:
        return False
    _erase(old)
    return True


def remove_leftovers(root: Path, seconds: float) -> int:
    """Remove what dead processes left half-written at least `seconds` ago; how many folders."""
    found = 0
    for each in list(root.iterdir()):
        if each.name.startswith(OLD):
            _erase(each)
            found += 1
        elif each.name.startswith(NEW):
            found += _remove_stale(each, seconds)
    return found


def _remove_stale(folder: Path, seconds: float) -> bool:
    try:
        # A young one may be about to be locked.
        old = time.time() - folder.stat().st_mtime >= seconds
        descriptor = _lock(folder) if old else None
    except OSError:
        return False
    if descriptor is None:
        return False
    _erase(folder)
    os.close(descriptor)
    return True


def _erase(path: Path) -> None:
    """Remove a folder or a file, as far as that goes: what is left goes with the next prune."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
