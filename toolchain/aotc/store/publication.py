"""Publishes artifacts in a store: verified while copied, sealed, and renamed into place."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.removing import move_aside
from aotc.files.work_folders import name_with_owner
from aotc.store.draft import PREFIX, Draft, remove, remove_leftovers, sync
from aotc.store.hold import Hold, hold, hold_exclusively, holders_of, unwritable
from aotc.store.stored_entry import entry_path, require_ours
from aotc.verification.container.base import Container
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.gate import AuthenticArtifact, authenticate, require_signer
from aotc.verification.policy.host_trust import Trust
from aotc.verification.references.model_references import require_inside
from aotc.verification.stores import require_safe

# How long to wait for the users of a damaged entry that cannot be moved.
_WAIT_SECONDS = 2.0
_PAUSE_SECONDS = 0.01
# Permissions of others to search a folder: what they load from it is not hashed again.
_SHARED = 0o011


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
        # An artifact without a trusted signer is not even cloned.
        require_signer(source, trust)
        draft = Draft(self.root)
        try:
            if draft.clone(source):
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
        finally:
            draft.discard()

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
                    "the damaged entry is in use, and cannot be moved out of its layer",
                    where=str(entry),
                    found=holders_of(entry),
                )
            time.sleep(_PAUSE_SECONDS)
        try:
            move_aside(entry, self.root / name_with_owner(PREFIX))
        finally:
            entry_hold.close()
