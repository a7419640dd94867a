"""A folder of the store while it is being filled: written to, locked, then sealed."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
import threading
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.locking import try_lock
from aotc.runtime.hold import Hold, share
from aotc.verification.container import Container

PREFIX = ".new-"
# ioctl of Linux by which a file shares another's blocks until one is written (ioctl_ficlone(2)).
_FICLONE = 0x40049409


class Draft:
    """A folder being filled; also the sink that verified bytes are copied into."""

    def __init__(self, root: Path) -> None:
        self.folder = root / f"{PREFIX}{secrets.token_hex(8)}"
        self._made: set[Path] = set()
        self._guard = threading.Lock()
        try:
            self.folder.mkdir(mode=0o700)
            self._descriptor = lock(self.folder)
        except OSError as error:
            raise unwritable(error, root) from None

    def open(self, path: str) -> DraftFile:
        """A writer for a file of the artifact; several may share the file."""
        place = self.folder / path
        try:
            with self._guard:
                if place.parent not in self._made:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    self._made.add(place.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            return DraftFile(os.open(place, flags, 0o600), place)
        except OSError as error:
            raise unwritable(error, place) from None

    def clone(self, source: Container) -> bool:
        """Let files share the source's blocks; False where the file system cannot.

        Small files are tried first, so that failing costs little.
        """
        if sys.platform != "linux":
            return False
        import fcntl

        listing = source.listing()
        if listing.problems:
            return False  # The gate names them when it reads the source itself.
        for folder in listing.folders:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        files = listing.files
        for path in sorted(files, key=lambda path: files[path]):
            with source.open(path) as file:
                writer = self.open(path)
                try:
                    fcntl.ioctl(writer.descriptor, _FICLONE, file.fileno())
                except OSError:
                    return False
                finally:
                    writer.close()
        return bool(files)

    def clear(self) -> None:
        """Take away what a failed clone left."""
        self._made.clear()
        for each in self.folder.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    def seal(self) -> None:
        """Make files 0444 and folders 0555."""
        for place, _, names in os.walk(self.folder, topdown=False):
            for name in names:
                Path(place, name).chmod(0o444)
            Path(place).chmod(0o555)

    def sync(self) -> None:
        """Have all of it written to the disk, so that a power failure leaves it whole."""
        for place, _, names in os.walk(self.folder, topdown=False):
            for name in names:
                sync(Path(place, name))
            sync(Path(place))

    def keep(self) -> Hold:
        """The folder, once it was published, as one that is in use."""
        if self._descriptor is None:
            raise ValueError("the draft was discarded")
        descriptor, self._descriptor = self._descriptor, None
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


def lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock until it is closed; None where another has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        taken = try_lock(descriptor)
    except OSError:
        taken = False
    if taken:
        return descriptor
    os.close(descriptor)
    return None


def sync(path: Path) -> None:
    """Have a file or the names in a folder written to the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a sealed folder, as far as that goes: what is left is stale and goes later."""
    if not folder.exists():
        return
    for place, _, _ in os.walk(folder):
        try:
            Path(place).chmod(0o700)
        except OSError:
            break
    shutil.rmtree(folder, ignore_errors=True)


def unwritable(error: OSError, place: Path) -> AotcError:
    """R007 for a failed write."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = "the disk of the store is full" if full else f"the store: {error.strerror}"
    return AotcError("AOTC-R007", what, where=str(place))
