"""An entry of a store that is in use: locked, so that nothing removes it, until it is let go.

Whoever reads an entry holds its folder's shared lock; whoever removes one needs the lock alone.
Locks end with the process that holds them, however it ends (flock(2)).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.failures import cannot_use
from aotc.files.folders import FOLDER
from aotc.files.locking import holder, locked, try_lock

LOCK: Final = ".lock"
# How long a prune, or an addition, waits for another one.
ALONE_SECONDS = 30.0
# How long an entry that another process publishes or removes is waited for.
_WAIT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.005


class Hold:
    """An open folder of a store, with its lock where that was to be had."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @property
    def descriptor(self) -> int:
        """The open folder; ValueError once it was let go."""
        if self._descriptor is None:
            raise ValueError("the entry was let go")
        return self._descriptor

    def touch(self) -> None:
        """Note that the entry is used now; a store that may only be read is left as it is."""
        try:
            os.utime(self.descriptor)
        except OSError:
            return

    def __del__(self) -> None:
        """Let the entry go with the last that refers to it."""
        self.close()

    def close(self) -> None:
        """Let the entry go."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def hold(entry: Path) -> Hold | None:
    """Hold an entry for reading; None where there is none, or where it is being removed.

    Where the lock is not to be had in time (another user may sit on it), the entry is held open
    without it: what is read from it is checked in any case.
    """
    try:
        descriptor = os.open(entry, FOLDER)
    except OSError:
        return None
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _lock_shared(descriptor) and time.monotonic() < deadline:
            if not leads_to(entry, descriptor):
                break
            time.sleep(_PAUSE_SECONDS)
        if leads_to(entry, descriptor):
            return Hold(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def hold_alone(entry: Path) -> Hold | None:
    """Hold an entry that nobody else holds; None where somebody does, or where it is gone."""
    try:
        descriptor = os.open(entry, FOLDER)
    except OSError:
        return None
    try:
        found = try_lock(descriptor) and leads_to(entry, descriptor)
    except OSError:
        found = False
    if found:
        return Hold(descriptor)
    os.close(descriptor)
    return None


def user_of(entry: Path) -> str:
    """Which processes hold an entry, where the system tells; else an empty string."""
    try:
        descriptor = os.open(entry, FOLDER)
    except OSError:
        return ""
    try:
        return holder(descriptor)
    finally:
        os.close(descriptor)


def share(descriptor: int) -> Hold:
    """Turn the lock of a folder that is held alone into a reader's."""
    _lock_shared(descriptor)
    return Hold(descriptor)


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Keep others from pruning a store or adding to its entries; R007 where they do not end.

    The file is its owner's alone, so that nobody else can sit on its lock.
    """
    path = root / LOCK
    what = "another process works on the store"
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, seconds=ALONE_SECONDS, code="AOTC-R007", what=what))
        except OSError as error:
            raise unwritable(error, path) from None
        yield


def unwritable(error: OSError, place: Path) -> AotcError:
    """R007 for a failed write."""
    return cannot_use(
        error,
        "the store",
        str(place),
        "AOTC-R007",
        when_full="the disk of the store is full",
        further_fix="Or point AOTC_STORE at a folder of yours.",
    )


def leads_to(path: Path, descriptor: int) -> bool:
    """Whether a path, followed through no link at its end, is the open folder."""
    try:
        found, held = path.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


def _lock_shared(descriptor: int) -> bool:
    try:
        return try_lock(descriptor, shared=True)
    except OSError:
        # A file system without locks: nothing there is pruned by us either.
        return True
