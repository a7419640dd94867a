"""The store: verified artifacts, by the digest of their aotc.json, read-only.

What is verified is what is loaded: an artifact is copied while it is verified (or cloned, and
the clone verified), and models are opened from the copy alone, so that a later change of the
source has no effect.  In a store that its owner alone may search, nothing is synced to disk: every
load checks the digests of the copy again, and one that a power failure tore is installed anew.
`system_store` tells when they are not checked again.

    <root>/sha256-<artifact id>/    a complete artifact; files 0444, folders 0555
    <root>/.new-<random>/           being installed, or removed; locked while its process lives
    <root>/.lock                    held by whoever prunes, or adds attestations
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from aotc.contract.artifact_names import ID_PREFIX
from aotc.contract.codec.strict_json import MAX_JSON_BYTES
from aotc.contract.manifest.document import Manifest
from aotc.contract.trust.anchors import TrustedKey
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.files.folders import PRIVATE, SHARED
from aotc.files.ownership import Unsafe, can_check_owners, sizes_below
from aotc.files.removing import move_aside
from aotc.files.work_folders import name_with_owner
from aotc.records import record
from aotc.store.draft import PREFIX, Draft, remove, remove_leftovers, sync
from aotc.store.hold import Hold, hold, hold_alone, unwritable, user_of
from aotc.verification.container.base import Container
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.container.opening import open_container
from aotc.verification.gate import AuthenticArtifact, authenticate, require_signer
from aotc.verification.policy.host_trust import Trust
from aotc.verification.references.model_references import require_inside
from aotc.verification.stores import default_root, owners, require_safe

# How long the users of a damaged entry that cannot be moved are waited for.
_WAIT_SECONDS = 2.0
_PAUSE_SECONDS = 0.01
# Permissions by which others than the owner search a folder: what they load is not hashed again.
_SHARED = 0o011
# Refusals that mean other bytes than were installed; others say something of reader or trust.
_OF_DAMAGE = frozenset(
    {
        *("AOTC-G003", "AOTC-G005", "AOTC-G006", "AOTC-G007", "AOTC-G008", "AOTC-G009"),
        *("AOTC-G012", "AOTC-G014", "AOTC-G015", "AOTC-I001", "AOTC-R016"),
    }
)

Reads = Callable[[Manifest], Collection[str]]


@record
class StoredArtifact:
    """A verified artifact in the store.  `folder` is its payload; `seconds` is what it took.

    While `hold` is open, nothing removes the entry.  `hashed` says whether the digests of what is
    read were checked now, and not only at install.
    """

    folder: Path
    authentic: AuthenticArtifact
    from_store: bool
    seconds: float
    hold: Hold
    hashed: bool = True


class Store:
    """A folder of verified artifacts: `root`, or $AOTC_STORE, or the user's cache.

    `shared` makes a new one readable for others.
    """

    def __init__(self, root: str | Path | None = None, *, shared: bool = False) -> None:
        self.root = (Path(root) if root is not None else default_root()).absolute()
        self._mode = SHARED if shared else PRIVATE

    def install(
        self,
        path: str | Path,
        keys: Trust | Iterable[TrustedKey],
        *,
        reads: Reads | None = None,
        durable: bool = False,
    ) -> StoredArtifact:
        """Verify the artifact at `path` into the store, or verify the store's copy of it again.

        `reads` says which payload files of a copy the caller will read; then the digests of those
        alone are checked again, and the caller must read no others.  `durable`: what is copied is
        on the disk at the end, as it always is in a store that others may search.
        The copy is found by the digest of the source's aotc.json; then signatures are read from
        the source, and the payload from the store only.  A damaged copy, and one that others may
        change, is replaced from the source.
        Raises the gate's refusals of the source, R006 where the copy is damaged and the source
        is refused too, R007 where the store cannot be written, R016 where others may change it.
        """
        started = time.perf_counter()
        trust = Trust.of(keys)
        self._check()
        with open_container(Path(path)) as source:
            entry = self.entry(identity_of(source))
            damage: AotcError | None = None
            held = hold(entry)
            if held is not None:
                try:
                    require_ours(entry, held)
                    authentic = _authenticate_entry(entry, source, trust, reads)
                    return stored(entry, authentic, held, started)
                except AotcError as error:
                    held.close()
                    if not is_damage(error):
                        raise
                    damage = error
                except BaseException:
                    held.close()
                    raise
            self._prepare()
            try:
                authentic, held = self._install(source, trust, durable)
            except AotcError as error:
                if damage is not None and (damage.code, error.code) == ("AOTC-R016", "AOTC-R007"):
                    # Who cannot write the store cannot replace it, and hears what is wrong there.
                    raise damage from None
                if damage is None or error.code in ("AOTC-R007", "AOTC-R017"):
                    raise
                raise AotcError(
                    "AOTC-R006",
                    "the store's copy is damaged, and the source is refused too",
                    where=str(entry),
                    found=damage.line(),
                    also=(damage, error),
                ) from None
        return stored(self.entry(authentic.id), authentic, held, started, from_store=False)

    def entry(self, artifact_id: str) -> Path:
        """Where the artifact of this id is, if it is in the store."""
        return self.root / f"{ID_PREFIX}{artifact_id}"

    def _install(
        self, source: Container, trust: Trust, durable: bool
    ) -> tuple[AuthenticArtifact, Hold]:
        # Whatever nobody vouches for is not even cloned.
        require_signer(source, trust)
        draft = Draft(self.root)
        try:
            if draft.clone(source):
                with FolderContainer(draft.folder) as clone:
                    authentic = authenticate(clone, trust)
            else:
                draft.clear()
                authentic = authenticate(source, trust, sink=draft)
                # The gate read the source once more for this, and loads read the copy.
                with FolderContainer(draft.folder) as copy:
                    require_inside(copy, authentic.manifest)
            durable = durable or bool(self.root.stat().st_mode & _SHARED)
            draft.seal()
            if durable:
                draft.sync()
            published = self._publish(draft, self.entry(authentic.id), authentic, trust)
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
        """Rename into place; where another installer was faster, its copy must verify as well."""
        for _ in range(8):
            try:
                draft.folder.rename(entry)
                return authentic, draft.keep()
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
            held = hold(entry)
            if held is None:
                self._clear_away(entry)
                continue
            try:
                require_ours(entry, held)
                with FolderContainer(entry) as other, FolderContainer(draft.folder) as own:
                    return authenticate(other, trust, attestations=own), held
            except AotcError:
                # Damaged, somebody else's, or just taken away by another installer: make room.
                held.close()
                self._remove(entry)
            except BaseException:
                held.close()
                raise
        raise AotcError("AOTC-R006", "the store's copy stays damaged", where=str(entry))

    def _clear_away(self, entry: Path) -> None:
        """Make room where something that no load could open has an entry's name."""
        try:
            is_folder = stat.S_ISDIR(entry.lstat().st_mode)
        except FileNotFoundError:
            return
        if not is_folder:
            entry.unlink(missing_ok=True)
        elif not os.access(entry, os.R_OK | os.X_OK):
            self._remove(entry)

    def _remove(self, entry: Path) -> None:
        """Take an entry that is damaged out of sight, and remove it.

        In an image's lower layer it cannot be moved, and is emptied where it is: that is for who
        holds it alone.  Raises R017 where somebody holds it for long.
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
        while (held := hold_alone(entry)) is None:
            if not entry.exists():
                return
            if time.monotonic() > deadline:
                raise AotcError(
                    "AOTC-R017",
                    "the damaged entry is in use, and cannot be moved out of its layer",
                    where=str(entry),
                    found=user_of(entry),
                )
            time.sleep(_PAUSE_SECONDS)
        try:
            move_aside(entry, self.root / name_with_owner(PREFIX))
        finally:
            held.close()

    def _check(self) -> None:
        """Raises R016 where others may change the root; R007 where it cannot be looked at."""
        try:
            require_safe(self.root)
        except OSError as error:
            raise unwritable(error, self.root) from None

    def _prepare(self) -> None:
        """Make the root, and remove what dead installers left."""
        try:
            require_safe(self.root, make=self._mode)
            remove_leftovers(self.root)
        except OSError as error:
            raise unwritable(error, self.root) from None


def require_ours(entry: Path, held: Hold) -> None:
    """Raises R016 where others than the store's owners may change an entry that is held.

    In a store that was another user's once, they may be there still.
    """
    if not can_check_owners():
        return
    try:
        sizes_below(held.descriptor, entry, owners())
    except Unsafe as error:
        raise error.refusal("AOTC-R016", "the store") from None
    except OSError as error:
        raise AotcError(
            "AOTC-R016", f"the entry cannot be looked at: {error.strerror}", where=str(entry)
        ) from None


def identity_of(source: Container) -> str:
    """sha256 of the source's aotc.json as it is now: only a name to look for, no claim."""
    try:
        return hashlib.sha256(source.read(MANIFEST, MAX_JSON_BYTES)).hexdigest()
    except AotcError as error:
        if error.code != "AOTC-G006":
            raise
        return "none"  # No entry has this name; the gate says what is wrong.


def is_damage(error: AotcError) -> bool:
    """Whether a refusal of the store's payload with the source's signatures is the payload's."""
    return any(
        each.code in _OF_DAMAGE and not each.where.startswith(ATTESTATIONS)
        for each in (error, *error.also)
    )


def stored(
    entry: Path,
    authentic: AuthenticArtifact,
    held: Hold,
    started: float,
    *,
    from_store: bool = True,
    hashed: bool = True,
) -> StoredArtifact:
    """An entry that was verified, as it is handed to a load; `started` by `time.perf_counter`."""
    held.touch()
    return StoredArtifact(
        folder=entry / PAYLOAD,
        authentic=authentic,
        from_store=from_store,
        seconds=time.perf_counter() - started,
        hold=held,
        hashed=hashed,
    )


def _authenticate_entry(
    entry: Path, source: Container, trust: Trust, reads: Reads | None
) -> AuthenticArtifact:
    with FolderContainer(entry) as copy:
        return authenticate(copy, trust, attestations=source, reads=reads)
