"""Entries of a store: their paths, and the locks that keep what is in use from removal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_use
from aotc.base.files.folders import FOLDER
from aotc.base.files.locks import holder, locked, try_lock
from aotc.base.files.ownership import Unsafe, can_check_owners, sizes_below
from aotc.base.interruptions import stop_if_interrupted
from aotc.spec.versions import ID_PREFIX
from aotc.trust.stores import owners, require_safe

# Holds on entries of a store: locked while in use, so that nothing removes them.
#
# Readers of an entry hold its folder's shared lock; removing it requires the exclusive lock. Locks
# end with the process that holds them, however it ends (flock(2)).


LOCK: Final = ".lock"
_ORIGIN: Final = "pulled-"
UNREACHED: Final = frozenset({"AOTC-I197", "AOTC-I202", "AOTC-I204"})
"""Refusals of a registry that say nothing of what it holds, and may pass by themselves."""
# How long a prune, or an addition, waits for another one.
EXCLUSIVE_SECONDS = 30.0
# How long to wait for an entry that another process publishes or removes.
_WAIT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.005


class Hold:
    """An open folder of a store, with its lock if it could be acquired.

    Released by `close`, or with its last reference.
    """

    def __init__(self, descriptor: int) -> None:
        # Of the standard library's objects, these close any descriptor in C, of a folder too.  In a
        # `__del__`, which is Python, an interruption would be swallowed, and the folder left open.
        if sys.platform == "darwin":
            self._folder = select.kqueue.fromfd(descriptor)
        else:
            self._folder = select.epoll.fromfd(descriptor)

    @property
    def descriptor(self) -> int:
        """The descriptor of the folder; raises ValueError once it is closed."""
        return self._folder.fileno()

    def touch(self) -> None:
        """Record that the entry is used now; does nothing in a read-only store."""
        try:
            os.utime(self.descriptor)
        except OSError:
            return

    def close(self) -> None:
        """Release the entry."""
        self._folder.close()


def hold(entry: Path) -> Hold | None:
    """Hold an entry for reading; None if there is none, or if it is being removed.

    If the lock cannot be acquired in time (another user may block it), the entry is held open
    without it: what is read from it is checked in any case.
    """
    try:
        descriptor = os.open(entry, FOLDER)
    except OSError:
        return None
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _lock_shared(descriptor) and time.monotonic() < deadline:
            if not is_still_at(entry, descriptor):
                break
            stop_if_interrupted()
            time.sleep(_PAUSE_SECONDS)
        if is_still_at(entry, descriptor):
            return Hold(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def hold_exclusively(entry: Path) -> Hold | None:
    """Hold an entry that no other process holds; None if one does, or if it is gone."""
    try:
        descriptor = os.open(entry, FOLDER)
    except OSError:
        return None
    try:
        found = try_lock(descriptor) and is_still_at(entry, descriptor)
    except OSError:
        found = False
    if found:
        return Hold(descriptor)
    os.close(descriptor)
    return None


def holders_of(entry: Path) -> str:
    """The processes that hold an entry, if the system reports them, else ""."""
    try:
        descriptor = os.open(entry, FOLDER)
    except OSError:
        return ""
    try:
        return holder(descriptor)
    finally:
        os.close(descriptor)


def share_lock(descriptor: int) -> Hold:
    """Turn the exclusive lock of a folder into a shared one."""
    _lock_shared(descriptor)
    return Hold(descriptor)


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Keep other processes from pruning a store or adding to its entries meanwhile.

    Raises AOTC-R007 if another process does not end.  The lock file belongs to its owner only, so
    that no one else can block it.
    """
    path = root / LOCK
    what = "another process works on the store"
    with ExitStack() as stack:
        try:
            stack.enter_context(
                locked(path, seconds=EXCLUSIVE_SECONDS, code="AOTC-R007", what=what)
            )
        except OSError as error:
            raise unwritable(error, path) from None
        yield


def unwritable(error: OSError, place: Path) -> AotcError:
    """AOTC-R007 for a failed write."""
    return cannot_use(
        error,
        "the store",
        str(place),
        "AOTC-R007",
        when_full="the disk of the store is full",
        further_fix="Or point AOTC_STORE at a folder of yours.",
    )


def is_still_at(path: Path, descriptor: int) -> bool:
    """Whether `path`, which must not be a link, is still the open folder."""
    try:
        found, opened = path.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _lock_shared(descriptor: int) -> bool:
    try:
        return try_lock(descriptor, shared=True)
    except OSError:
        # A file system without locks: aotc does not prune there either.
        return True


# The path of a store's entry, and that only the store's owners can change it.


def entry_path(root: Path, artifact_id: str) -> Path:
    """The folder of an artifact in the store `root`, whether or not it exists."""
    return root / f"{ID_PREFIX}{artifact_id}"


def acceptance_path(root: Path, artifact_id: str) -> Path:
    """The file beside an entry that tells which fixtures matched in loads of the store's owner."""
    return root / f"accepted-{artifact_id}.json"


def origin_path(root: Path, digest: str, artifact_id: str) -> Path:
    """The empty file that tells which artifact a manifest of a registry (`sha256:…`) is of."""
    return root / f"{_ORIGIN}{_hex(digest)}-{artifact_id}"


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def entry_of_origin(root: Path, digest: str) -> Path | None:
    """The entry that was pulled by the digest of a registry's manifest; None if there is none.

    In a store that others may change, nothing is looked for.
    """
    try:
        if not require_safe(root):
            return None
        for path in root.glob(f"{_ORIGIN}{_hex(digest)}-*"):
            entry = entry_path(root, path.name.rpartition("-")[2])
            if entry.is_dir():
                return entry
    except (AotcError, OSError):
        return None
    return None


def forget_origins(root: Path, artifact_id: str) -> None:
    """Remove what tells where an artifact, which was removed, came from."""
    with suppress(OSError):
        for path in root.glob(f"{_ORIGIN}*-{artifact_id}"):
            path.unlink()


def require_ours(entry: Path, entry_hold: Hold) -> None:
    """Raise AOTC-R016 if others than the store's owners may change an entry that is held.

    In a store that once belonged to another user, that user may still be there.
    """
    if not can_check_owners():
        return
    try:
        sizes_below(entry_hold.descriptor, entry, owners())
    except Unsafe as error:
        raise error.refusal("AOTC-R016", "the store") from None
    except OSError as error:
        raise AotcError(
            "AOTC-R016", f"the entry cannot be examined: {error.strerror}", where=str(entry)
        ) from None
