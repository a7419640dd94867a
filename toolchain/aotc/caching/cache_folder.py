"""The folder of the build cache: where it is, whose it is, its lock, and half-written folders."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files import work_folders
from aotc.files.failures import cannot_use
from aotc.files.folders import PRIVATE
from aotc.files.locking import lock_or_close, locked
from aotc.files.ownership import Unsafe, can_check_owners, open_folder
from aotc.files.removing import erase, move_aside
from aotc.files.user_folders import cache_folder

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
    cache = cache_folder()
    if cache is None:
        raise AotcError("AOTC-R014", "this user has no home folder for a cache")
    return cache / "aotc" / "build"


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
            fix="Set AOTC_CACHE_BYTES to a number of bytes, or not at all.",
        )
    return int(stated)


def unusable(error: OSError, place: Path) -> AotcError:
    """R014 for a failed call of the operating system, on `place` where it names no file."""
    return cannot_use(
        error,
        "the cache",
        str(error.filename or place),
        "AOTC-R014",
        when_full="the disk is full",
        further_fix="Or point AOTC_CACHE at a folder of yours, or build with --no-cache.",
    )


def is_usable(folder: Path, *, make: bool = False) -> bool:
    """Whether the folder is there, and made for this user alone where it is to be and is not.

    Raises R014 where others than this user and root may change it, or a folder that leads to it:
    they could put files under the key of a build, with digests that fit.
    """
    try:
        if not can_check_owners():
            if make:
                folder.mkdir(parents=True, exist_ok=True)
            return folder.is_dir()
        os.close(open_folder(folder, (os.geteuid(),), make=PRIVATE if make else None))
    except FileNotFoundError:
        return False
    except (NotADirectoryError, FileExistsError):
        raise AotcError("AOTC-R014", "the cache is no folder", where=str(folder)) from None
    except OSError as error:
        raise unusable(error, folder) from None
    except Unsafe as error:
        raise error.refusal("AOTC-R014", "the cache", "AOTC_CACHE") from None
    return True


def is_own(entry: Path) -> bool:
    """Whether an entry, and the folder that it is in, are of this user or of root alone.

    In a cache that was another user's once, some may be theirs still.  Raises OSError.
    """
    if not can_check_owners():
        return True
    try:
        os.close(open_folder(entry, (os.geteuid(),)))
    except Unsafe:
        return False
    return True


def make(folder: Path) -> None:
    """Make the folder for this user alone where it is not there; raises R014."""
    is_usable(folder, make=True)


def draft(root: Path) -> AbstractContextManager[Path]:
    """A new folder in `root` to fill and rename; locked, and removed where it was not renamed.

    Raises OSError where it cannot be made.
    """
    return work_folders.locked_folder(root, NEW)


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None where another has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return descriptor if lock_or_close(descriptor) else None


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
    """Take an entry out of sight, then remove it; whether it was there.

    Raises OSError where it cannot be moved or, in a lower layer of an overlay, removed.
    """
    old = root / work_folders.name_with_owner(OLD)
    if not move_aside(path, old):
        return False
    erase(old)
    return True


def remove_leftovers(root: Path, seconds: float) -> int:
    """Remove what dead processes left half-written; how many folders.

    Where a name does not say whose it is, or with no `seconds` at all, it goes where its lock is
    free and it is that old.
    """
    found = 0
    for each in list(root.iterdir()):
        if each.name.startswith(OLD):
            erase(each)
            found += 1
        elif each.name.startswith(NEW):
            stated = work_folders.has_owner(each.name)
            dead = work_folders.remove_abandoned(each)
            if not dead and (not stated or not seconds):
                dead = _remove_stale(each, seconds)
            found += dead
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
    erase(folder)
    os.close(descriptor)
    return True
