"""The folder of the build cache: its location, owner and lock, and half-written folders in it."""

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
# A half-written folder of this age with a free lock was left by a process that ended.
STALE_SECONDS = 60.0
# How long a prune waits for another one to end.
_LOCK_SECONDS = 5.0


def default_folder() -> Path:
    """$AOTC_CACHE, or aotc/build in $XDG_CACHE_HOME or ~/.cache; raises R014 without a home."""
    stated = os.environ.get("AOTC_CACHE")
    if stated:
        return Path(stated).absolute()
    cache = cache_folder()
    if cache is None:
        raise AotcError("AOTC-R014", "this user has no home folder for a cache")
    return cache / "aotc" / "build"


def default_limit() -> int:
    """The limit in bytes: $AOTC_CACHE_BYTES, or 10 GiB; raises R014 if it is not a number."""
    stated = os.environ.get("AOTC_CACHE_BYTES")
    if not stated:
        return DEFAULT_LIMIT
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 15):
        raise AotcError(
            "AOTC-R014",
            "the size of the cache is not a number of bytes",
            where="AOTC_CACHE_BYTES",
            expected="at most 15 digits",
            found=stated,
            fix="Set AOTC_CACHE_BYTES to a number of bytes, or not at all.",
        )
    return int(stated)


def unusable(error: OSError, place: Path) -> AotcError:
    """The refusal R014 for a failed call; `place` is used if the error names no file."""
    return cannot_use(
        error,
        "the cache",
        str(error.filename or place),
        "AOTC-R014",
        when_full="the disk is full",
        further_fix="Or point AOTC_CACHE at a folder of yours, or build with --no-cache.",
    )


def is_usable(folder: Path, *, make: bool = False) -> bool:
    """Whether the folder exists; with `make` it is made for this user alone if it does not.

    Raises R014 if anybody but this user and root can change it or a folder above it: they could
    store files under the key of a build, with matching digests.
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
        raise AotcError("AOTC-R014", "the cache is not a folder", where=str(folder)) from None
    except OSError as error:
        raise unusable(error, folder) from None
    except Unsafe as error:
        raise error.refusal("AOTC-R014", "the cache", "AOTC_CACHE") from None
    return True


def is_own(entry: Path) -> bool:
    """Whether only this user and root can change an entry and the folder that contains it.

    A cache that once belonged to another user may contain their entries.  Raises OSError.
    """
    if not can_check_owners():
        return True
    try:
        os.close(open_folder(entry, (os.geteuid(),)))
    except Unsafe:
        return False
    return True


def make_for_user(folder: Path) -> None:
    """Make the folder for this user alone if it does not exist; raises R014."""
    is_usable(folder, make=True)


def draft(root: Path) -> AbstractContextManager[Path]:
    """A new folder in `root` to fill and rename; locked, and removed if it was not renamed.

    Raises OSError if it cannot be made.
    """
    return work_folders.locked_folder(root, NEW)


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return descriptor if lock_or_close(descriptor) else None


@contextmanager
def locked_for_pruning(root: Path) -> Iterator[None]:
    """Keep other prunes out of `root`; raises R014 if one does not end."""
    path = root / LOCK
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, seconds=_LOCK_SECONDS, code="AOTC-R014"))
        except OSError as error:
            raise unusable(error, path) from None
        yield


def remove_entry(path: Path, root: Path) -> bool:
    """Rename an entry out of sight, then remove it; whether it existed.

    Raises OSError if it cannot be moved or, in a lower layer of an overlay, removed.
    """
    old = root / work_folders.name_with_owner(OLD)
    if not move_aside(path, old):
        return False
    erase(old)
    return True


def remove_leftovers(root: Path, seconds: float) -> int:
    """Remove what ended processes left half-written; the number of removed folders.

    A folder whose name does not state its owner is removed if its lock is free and it is at least
    `seconds` old; without `seconds` this applies to every folder.
    """
    found = 0
    for folder in list(root.iterdir()):
        if folder.name.startswith(OLD):
            erase(folder)
            found += 1
        elif folder.name.startswith(NEW):
            stated = work_folders.has_owner(folder.name)
            dead = work_folders.remove_abandoned(folder)
            if not dead and (not stated or not seconds):
                dead = _remove_stale(folder, seconds)
            found += dead
    return found


def _remove_stale(folder: Path, seconds: float) -> bool:
    try:
        # The owner of a young one may be about to lock it.
        old = time.time() - folder.stat().st_mtime >= seconds
        descriptor = _try_lock(folder) if old else None
    except OSError:
        return False
    if descriptor is None:
        return False
    erase(folder)
    os.close(descriptor)
    return True
