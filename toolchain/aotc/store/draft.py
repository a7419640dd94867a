"""A folder of the store while it is being filled: written to, locked, then sealed."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.cloning import share_blocks
from aotc.files.folders import FOLDER, change_mode, make_below
from aotc.files.locking import try_lock
from aotc.files.removing import empty, erase
from aotc.files.work_folders import lock_path, name_with_owner, remove_abandoned
from aotc.store.hold import Hold, leads_to, share, unwritable
from aotc.verification.container.base import Container

PREFIX: Final = ".new-"
_TRIES: Final = 8
_LOOKS: Final = 200
_PAUSE_SECONDS: Final = 0.005


class Draft:
    """A folder being filled; also the sink that verified bytes are copied into.

    All of it is opened, sealed and synced by descriptors below the folder that was made, and no
    link is followed, whoever else may write the store.
    """

    def __init__(self, root: Path) -> None:
        self._descriptor: int | None = None
        try:
            self.folder, self._descriptor = _new(root)
        except OSError as error:
            raise unwritable(error, root) from None

    def open(self, path: str) -> DraftFile:
        """A writer for a file of the artifact; several may share the file."""
        place = self.folder / path
        try:
            with self.below(path.rpartition("/")[0]) as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(place.name, flags, 0o600, dir_fd=folder)
            return DraftFile(_plain(descriptor, place), place)
        except OSError as error:
            raise unwritable(error, place) from None

    def clone(self, source: Container) -> bool:
        """Let files share the source's blocks; False where the file system cannot.

        Small files are tried first, so that failing costs little.
        """
        if sys.platform != "linux":
            return False
        listing = source.listing()
        if listing.problems:
            return False  # The gate names them when it reads the source itself.
        for folder in listing.folders:
            with self.below(folder):
                pass
        files = listing.files
        for path in sorted(files, key=lambda path: files[path]):
            with source.open(path) as file:
                writer = self.open(path)
                try:
                    if not share_blocks(file, writer.descriptor):
                        return False
                finally:
                    writer.close()
        return bool(files)

    def clear(self) -> None:
        """Take away what a failed clone left; raises OSError."""
        empty(self.folder)

    def seal(self) -> None:
        """Make files 0444 and folders 0555; raises R016 for what is not this draft's, OSError."""
        self._each(self._held(), self.folder, os.fchmod)

    def sync(self) -> None:
        """Have all of it written to the disk, so that a power failure leaves it whole."""
        self._each(self._held(), self.folder, lambda each, _: os.fsync(each))

    @contextmanager
    def below(self, folder: str) -> Iterator[int]:
        """A folder of the draft, open, and made if it is not there; raises OSError."""
        at = os.dup(self._held())
        try:
            for part in folder.split("/") if folder else ():
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=at)
                below = os.open(part, FOLDER, dir_fd=at)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _each(self, folder: int, shown: Path, do: Callable[[int, int], None]) -> None:
        """Do something with each file and folder, and the mode it is to have; those within first.

        Raises R016 for what is not this user's own, and OSError.
        """
        for name in os.listdir(folder):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                below = os.open(name, FOLDER, dir_fd=folder)
                try:
                    self._each(below, shown / name, do)
                finally:
                    os.close(below)
                continue
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
                    raise _foreign(shown / name, "a link or special file") from None
                raise
            descriptor = _plain(descriptor, shown / name)
            try:
                do(descriptor, 0o444)
            finally:
                os.close(descriptor)
        do(folder, 0o555)

    def _held(self) -> int:
        if self._descriptor is None:
            raise ValueError("the draft was discarded")
        return self._descriptor

    def keep(self) -> Hold:
        """The folder, once it was published, as one that is in use."""
        descriptor, self._descriptor = self._held(), None
        return share(descriptor)

    def discard(self) -> None:
        """Release the lock, and remove the folder if it was not published."""
        remove(self.folder)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DraftFile:
    """One open file of a draft."""

    def __init__(self, descriptor: int, place: Path) -> None:
        self.descriptor = descriptor
        self._place = place

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of `data` at `offset`; raises R007."""
        try:
            while data:
                count = os.pwrite(self.descriptor, data, offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            raise unwritable(error, self._place) from None

    def close(self) -> None:
        """Release the file."""
        os.close(self.descriptor)


def _new(root: Path) -> tuple[Path, int]:
    """A new folder in a store, and its descriptor, locked where the file system has locks."""
    for _ in range(_TRIES):
        folder = root / name_with_owner(PREFIX)
        try:
            make_below(folder, 0o700)
            descriptor = os.open(folder, FOLDER)
        except FileNotFoundError:
            if not root.is_dir():
                raise
            continue
        try:
            _lock_own(folder, descriptor)
            if leads_to(folder, descriptor):
                return folder, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Taken for a dead one's before it was locked.
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(root))


def _lock_own(folder: Path, descriptor: int) -> None:
    """Lock a new folder, on which somebody may sit who looks whether it is a dead one's."""
    for _ in range(_LOOKS):
        try:
            if try_lock(descriptor) or not leads_to(folder, descriptor):
                return
        except OSError:
            return  # A file system without locks; the name says whose it is.
        time.sleep(_PAUSE_SECONDS)


def _plain(descriptor: int, shown: Path) -> int:
    """The descriptor of a file of this user's own; else it is closed, and R016 raised."""
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise _foreign(shown, f"user {found.st_uid}, mode {found.st_mode:o}, {found.st_nlink} names")


def _foreign(shown: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-R016",
        "somebody else changes what is being installed",
        where=str(shown),
        expected="a file of this user's, with one name",
        found=found,
    )


def sync(path: Path) -> None:
    """Have a file or the names in a folder written to the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a sealed folder, as far as that goes: what is left is stale and goes later."""
    with suppress(OSError):
        change_mode(folder, 0o700)
    erase(folder)


def remove_leftovers(root: Path) -> int:
    """Remove half-written folders of dead processes; how many.

    Whoever lives holds the lock of its own, from another container too, and takes a new one where
    it was removed before it was locked.  On file systems without locks the name says whose it is.
    """
    found = 0
    for folder in [each for each in root.iterdir() if each.name.startswith(PREFIX)]:
        try:
            descriptor = lock_path(folder)
        except OSError:
            continue
        if descriptor is None:
            found += remove_abandoned(folder)
            continue
        try:
            remove(folder)
            found += not folder.exists()
        finally:
            os.close(descriptor)
    return found
