"""Publishes artifacts in a store: verified while copied, sealed, and renamed into place."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.folders import FOLDER, PAYLOAD, change_mode, make_below
from aotc.base.files.locks import try_lock
from aotc.base.files.replacing import empty, erase, move_aside, share_blocks
from aotc.base.files.work_folders import (
    is_resumable,
    lock_path,
    name_with_owner,
    remove_abandoned,
    resumable_name,
    take_over,
)
from aotc.runtime.store.entries import (
    UNREACHED,
    Hold,
    entry_path,
    hold,
    hold_exclusively,
    holders_of,
    is_still_at,
    require_ours,
    share_lock,
    unwritable,
)
from aotc.spec.manifest import Manifest
from aotc.trust.container import Container, FolderContainer
from aotc.trust.gate import AuthenticArtifact, authenticate, require_signer
from aotc.trust.policy.host_trust import Trust
from aotc.trust.references import require_inside
from aotc.trust.stores import require_safe

# A folder of the store while it is being filled: locked, written to, then sealed.


PREFIX: Final = ".new-"
_FILE_MODE: Final = 0o444
_FOLDER_MODE: Final = 0o555
_MAX_TRIES: Final = 8
_MAX_LOCK_TRIES: Final = 200
_PAUSE_SECONDS: Final = 0.005


class Draft:
    """A folder being filled; also the sink for verified bytes.

    Everything is opened, sealed and synced by descriptors below the created folder, and no link is
    followed, whoever else may write to the store.
    """

    def __init__(self, root: Path, *, resumes: str = "") -> None:
        """A new folder in a store; the artifact that it `resumes` has what an earlier one holds."""
        self._descriptor: int | None = None
        self._modes = (0o600, 0o700)
        self._refused: Callable[[OSError, Path], AotcError] = unwritable
        try:
            prefix = f"{PREFIX}{resumes}-" if resumes else PREFIX
            found = take_over(root, prefix) if resumes else None
            self.folder, self._descriptor = found or _create_folder(
                root, lambda: resumable_name(prefix) if resumes else name_with_owner(prefix)
            )
        except OSError as error:
            raise unwritable(error, root) from None

    @classmethod
    def at(cls, folder: Path) -> Draft:
        """A draft in a folder that the caller made, or found, and removes; raises OSError.

        What is written there is readable for others as this user's files are.
        """
        draft = cls.__new__(cls)
        folder.mkdir(exist_ok=True)
        draft.folder, draft._descriptor = folder, os.open(folder, FOLDER)
        draft._modes = (0o666, 0o777)
        draft._refused = lambda error, path: cannot_write(error, "cannot write", str(path))
        return draft

    def open(self, path: str) -> DraftFile:
        """A writer for a file of the artifact; several may share the file."""
        file_path = self.folder / path
        try:
            with self.open_subfolder(path.rpartition("/")[0]) as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(file_path.name, flags, self._modes[0], dir_fd=folder)
            own = _require_own_file(descriptor, file_path)
            return DraftFile(own, file_path, self._refused)
        except OSError as error:
            raise self._refused(error, file_path) from None

    def clone(self, source: Container) -> bool:
        """Let files share the source's blocks; False if the file system cannot.

        Small files are tried first, so that failing costs little.
        """
        if sys.platform != "linux" or source.origin:
            return False
        listing = source.listing()
        if listing.problems:
            return False  # The gate reports them when it reads the source itself.
        for folder in listing.folders:
            with self.open_subfolder(folder):
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
        """Remove what a failed clone left behind; raises OSError."""
        empty(self.folder)

    def keep_only(self, sizes: Mapping[str, int]) -> None:
        """Keep, of what an earlier draft left, files of these paths that are not too large.

        Their bytes are not looked at.  Nothing is kept where something is not a file of this
        user's own.  Raises OSError.
        """
        try:
            self._for_each(self._open_descriptor(), self.folder, _make_writable)
            with FolderContainer(self.folder) as found:
                listing = found.listing()
        except AotcError:
            self.clear()
            return
        if listing.problems:
            self.clear()
            return
        folders = {parent for path in sizes for parent in _parents(path)}
        for folder in listing.folders - folders:
            erase(self.folder / folder)
        for path, size in listing.files.items():
            if size > sizes.get(path, -1):
                erase(self.folder / path)

    def seal(self) -> None:
        """Set files to 0444 and folders to 0555.

        Raises AOTC-R016 for files that do not belong to this draft, and OSError.
        """
        self._for_each(self._open_descriptor(), self.folder, os.fchmod)

    def sync(self) -> None:
        """Write everything to the disk, so that it survives a power failure."""
        self._for_each(
            self._open_descriptor(), self.folder, lambda descriptor, _: os.fsync(descriptor)
        )

    @contextmanager
    def open_subfolder(self, folder: str) -> Iterator[int]:
        """A folder of the draft, open, and created if it does not exist; raises OSError."""
        current = os.dup(self._open_descriptor())
        try:
            for part in folder.split("/") if folder else ():
                with suppress(FileExistsError):
                    os.mkdir(part, self._modes[1], dir_fd=current)
                subfolder = os.open(part, FOLDER, dir_fd=current)
                os.close(current)
                current = subfolder
            yield current
        finally:
            os.close(current)

    def _for_each(self, folder: int, shown: Path, action: Callable[[int, int], None]) -> None:
        """Call `action` on each file and folder with its final mode, contents first.

        Raises AOTC-R016 for what is not this user's own, and OSError.
        """
        for name in os.listdir(folder):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                subfolder = os.open(name, FOLDER, dir_fd=folder)
                try:
                    self._for_each(subfolder, shown / name, action)
                finally:
                    os.close(subfolder)
                continue
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
                    raise _foreign_error(shown / name, "a link or special file") from None
                raise
            descriptor = _require_own_file(descriptor, shown / name)
            try:
                action(descriptor, _FILE_MODE)
            finally:
                os.close(descriptor)
        action(folder, _FOLDER_MODE)

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise ValueError("the draft was discarded")
        return self._descriptor

    def into_hold(self) -> Hold:
        """The published folder as a hold: it is in use from now on."""
        descriptor, self._descriptor = self._open_descriptor(), None
        return share_lock(descriptor)

    def discard(self, *, keep: bool = False) -> None:
        """Release the lock, and remove the folder if it was not published, unless to `keep` it."""
        if not keep:
            remove(self.folder)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DraftFile:
    """An open file of a draft."""

    def __init__(
        self,
        descriptor: int,
        file_path: Path,
        refused: Callable[[OSError, Path], AotcError] = unwritable,
    ) -> None:
        self.descriptor = descriptor
        self._path = file_path
        self._refused = refused

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of `data` at `offset`; raises AOTC-R007 in a store, else AOTC-I018 and I026."""
        try:
            while data:
                count = os.pwrite(self.descriptor, data, offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            raise self._refused(error, self._path) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def _make_writable(descriptor: int, sealed_mode: int) -> None:
    wanted = 0o600 if sealed_mode == _FILE_MODE else 0o700
    os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | wanted)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _create_folder(root: Path, name: Callable[[], str]) -> tuple[Path, int]:
    """A new folder in a store, and its descriptor, locked if the file system has locks."""
    for _ in range(_MAX_TRIES):
        folder = root / name()
        try:
            make_below(folder, 0o700)
            descriptor = os.open(folder, FOLDER)
        except FileNotFoundError:
            if not root.is_dir():
                raise
            continue
        try:
            _lock_own(folder, descriptor)
            if is_still_at(folder, descriptor):
                return folder, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Removed before it was locked, as if its process had died.
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(root))


def _lock_own(folder: Path, descriptor: int) -> None:
    """Lock a new folder, which another process may hold while it checks whether it is abandoned."""
    for _ in range(_MAX_LOCK_TRIES):
        try:
            if try_lock(descriptor) or not is_still_at(folder, descriptor):
                return
        except OSError:
            return  # A file system without locks; the name tells the owner.
        time.sleep(_PAUSE_SECONDS)


def _require_own_file(descriptor: int, shown: Path) -> int:
    """The descriptor of a file of this user's own; for others, closes it and raises AOTC-R016."""
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise _foreign_error(
        shown, f"user {found.st_uid}, mode {found.st_mode:o}, {found.st_nlink} names"
    )


def _foreign_error(shown: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-R016",
        "another user has changed a file that is being installed",
        where=str(shown),
        expected="a file of this user, with one name",
        found=found,
    )


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a sealed folder as far as possible; the rest is removed later as a leftover."""
    with suppress(OSError):
        change_mode(folder, 0o700)
    erase(folder)


def remove_leftovers(root: Path) -> int:
    """Remove half-written folders of dead processes; returns their number.

    Those of pulls stay for a day, for the next pull of the same artifact.
    A living process holds its folder's lock, also from another container, and creates a new folder
    if it was removed before it was locked.  On file systems without locks the name tells the owner.
    """
    found = 0
    for folder in [path for path in root.iterdir() if path.name.startswith(PREFIX)]:
        if is_resumable(folder):
            continue
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


def fetch(source: Container, trust: Trust, draft: Draft, manifest: Manifest) -> AuthenticArtifact:
    """Fill a draft with an artifact of a registry, all of it verified.

    What an earlier draft left in it is used as far as its digests are right.  `manifest` is that
    of the source, verified already.  Raises the gate's refusals, AOTC-R007 and R016, and OSError.
    """
    draft.keep_only({f"{PAYLOAD}/{entry.path}": entry.size for entry in manifest.files})
    with FolderContainer(draft.folder) as present:
        return authenticate(source, trust, sink=draft, present=present)


def is_cut(error: BaseException) -> bool:
    """Whether a transfer ended with nothing wrong in what has come, so that it can go on later."""
    if isinstance(error, AotcError):
        return error.code in UNREACHED
    return not isinstance(error, OSError)


# How long to wait for the users of a damaged entry that cannot be moved.
_WAIT_SECONDS: Final = 2.0
_LOCK_PAUSE_SECONDS: Final = 0.01
# Permissions of others to search a folder: what they load from it is not hashed again.
_SHARED: Final = 0o011


class Publication:
    """Installs into the store `root`, which is created with permissions `mode` if missing.

    Leftovers of dead installers are removed first.  Raises AOTC-R007 and R016.
    """

    def __init__(self, root: Path, mode: int) -> None:
        self.root = root
        try:
            require_safe(root, make=mode)
            remove_leftovers(root)
        except OSError as error:
            raise unwritable(error, root) from None

    def install(
        self, source: Container, trust: Trust, *, durable: bool
    ) -> tuple[AuthenticArtifact, Hold]:
        """Verify an artifact while it is copied, and publish the copy; returns it with a hold.

        `durable`: the copy is on the disk afterwards, as it always is in a store that others may
        search.  An existing entry is kept if it verifies, and replaced if it does not.  Raises the
        gate's refusals, AOTC-R006, R007 and R017.
        """
        # An artifact without a trusted signer is not even cloned, and what is refused not fetched.
        checked: AuthenticArtifact | None = None
        if source.origin:
            checked = authenticate(source, trust, files_to_read=lambda _: ())
        else:
            require_signer(source, trust)
        draft, keep = Draft(self.root, resumes=checked.id if checked else ""), False
        try:
            if checked is not None:
                authentic = fetch(source, trust, draft, checked.manifest)
            elif draft.clone(source):
                with FolderContainer(draft.folder) as clone:
                    authentic = authenticate(clone, trust)
            else:
                draft.clear()
                authentic = authenticate(source, trust, sink=draft)
                # The gate checked this in the source, but loads read the copy.
                with FolderContainer(draft.folder) as copy:
                    require_inside(copy, authentic.manifest)
            durable = durable or bool(self.root.stat().st_mode & _SHARED)
            draft.seal()
            if durable:
                draft.sync()
            published = self._publish(draft, entry_path(self.root, authentic.id), authentic, trust)
            if durable:
                sync(self.root)
            return published
        except OSError as error:
            raise unwritable(error, self.root) from None
        except BaseException as error:
            keep = bool(source.origin) and is_cut(error)
            raise
        finally:
            draft.discard(keep=keep)

    def _publish(
        self,
        draft: Draft,
        entry: Path,
        authentic: AuthenticArtifact,
        trust: Trust,
    ) -> tuple[AuthenticArtifact, Hold]:
        """Rename into place; if another installer was faster, its copy must verify as well."""
        for _ in range(8):
            try:
                draft.folder.rename(entry)
                return authentic, draft.into_hold()
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
            entry_hold = hold(entry)
            if entry_hold is None:
                self._remove_unreadable(entry)
                continue
            try:
                require_ours(entry, entry_hold)
                with FolderContainer(entry) as other, FolderContainer(draft.folder) as own:
                    return authenticate(other, trust, attestations=own), entry_hold
            except AotcError:
                # Damaged, owned by another user, or just removed by another installer: make room.
                entry_hold.close()
                self._remove(entry)
            except BaseException:
                entry_hold.close()
                raise
        raise AotcError("AOTC-R006", "the store's copy stays damaged", where=str(entry))

    def _remove_unreadable(self, entry: Path) -> None:
        """Make room if something that no load could open has the entry's name."""
        try:
            is_folder = stat.S_ISDIR(entry.lstat().st_mode)
        except FileNotFoundError:
            return
        if not is_folder:
            entry.unlink(missing_ok=True)
        elif not os.access(entry, os.R_OK | os.X_OK):
            self._remove(entry)

    def _remove(self, entry: Path) -> None:
        """Move a damaged entry out of sight, and remove it.

        In a lower layer of an image it cannot be moved, and is emptied in place, which needs the
        exclusive hold.  Raises AOTC-R017 if another process holds it for long.
        """
        old = self.root / name_with_owner(PREFIX)
        try:
            entry.rename(old)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._empty(entry)
        else:
            remove(old)

    def _empty(self, entry: Path) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while (entry_hold := hold_exclusively(entry)) is None:
            if not entry.exists():
                return
            if time.monotonic() > deadline:
                raise AotcError(
                    "AOTC-R017",
                    "the damaged entry is in use, and cannot be moved out of its image layer",
                    where=str(entry),
                    found=holders_of(entry),
                )
            time.sleep(_LOCK_PAUSE_SECONDS)
        try:
            move_aside(entry, self.root / name_with_owner(PREFIX))
        finally:
            entry_hold.close()
