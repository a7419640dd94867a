"""Loads from a store that another user installs into: verified at install, not hashed again.

A load takes its artifact from a system-wide store that has it: $AOTC_SYSTEM_STORE (empty: none), by
default /var/lib/aotc/store; if a load names its store, only that one is searched.  The entry's
owner is root, or the user in $AOTC_SYSTEM_STORE_OWNER.  Digests of an entry are not checked again
if

  - only its owner, or root, may change it, including every folder that leads to it;
  - this process is neither, and its file system keeps owners;
  - others may search the store's folder: what is installed there is on the disk before it gets its
    name.

Signatures are checked, with aotc.json, manifest.json, the list of files and their sizes; so trust,
policy, revocation and the fit to this host apply.  A process of the owner or of root checks the
digests again, unless the load says that it trusts the store.  A store that others may change is
ignored, and refused (R016) if $AOTC_SYSTEM_STORE names it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.base.files.locks import file_info, mount_of
from aotc.base.files.ownership import ROOT_USER, Unsafe, can_check_owners, open_folder, sizes_below
from aotc.base.records import record
from aotc.runtime.store.entries import UNREACHED, Hold, entry_of_origin, hold, is_still_at
from aotc.runtime.store.user_store import (
    Reads,
    Store,
    StoredArtifact,
    identity_of,
    is_damage,
    stored_artifact,
)
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding
from aotc.spec.trust_anchors import TrustedKey
from aotc.spec.versions import ID_PREFIX, artifact_path, stated_id, stated_reference
from aotc.trust.container import Container, FolderContainer, reread
from aotc.trust.gate import authenticate
from aotc.trust.opening import open_container, other_artifact
from aotc.trust.policy.host_trust import Trust
from aotc.trust.stores import default_root, entry_path, system_owner, system_root


@record(kw_only=False)
class SystemStore:
    """A folder that may be a system-wide store; `stated`: the environment names it."""

    root: Path
    owner: int = ROOT_USER
    stated: bool = False


@record(kw_only=False)
class SafeEntry:
    """An entry that only its owner may change, held; `sizes` of its files in bytes, by path."""

    path: Path
    hold: Hold
    sizes: dict[str, int]
    shared: bool


def take(
    path: str | Path,
    keys: Trust | Iterable[TrustedKey],
    *,
    reads: Reads,
    store: str | Path | None = None,
    trust_store: bool = False,
) -> StoredArtifact:
    """The artifact to load: from a system-wide store that has it, else through the user's store.

    `path` is an artifact, or the name `sha256-<id>` of an entry.  `reads` returns the payload files
    that the caller will read; it must not read others.  `store` names the only store to use.
    `trust_store` accepts the store's copy even if this process could change it.  Raises as
    `Store.install` does; AOTC-R016 if a store named as system-wide is not safe; R006 if its copy is
    damaged.
    """
    started = time.perf_counter()
    trust = Trust.of(keys)
    candidates = list(_candidates(store, trust_store=trust_store))
    wanted_id = stated_id(path)
    if wanted_id is None:
        artifact_place = artifact_path(path)
        return reread(
            artifact_place,
            lambda: _take(artifact_place, trust, candidates, reads, store, trust_store, started),
        )
    roots = [*(entry.root for entry in candidates), Path(store or default_root())]
    entry = entry_path(wanted_id, roots)
    found = _take(entry, trust, candidates, reads, store, trust_store, started)
    if found.authentic.id != wanted_id:
        found.hold.close()
        raise other_artifact(entry, wanted_id, found.authentic.id)
    return found


def _take(
    artifact_place: Path,
    trust: Trust,
    candidates: list[SystemStore],
    reads: Reads,
    store: str | Path | None,
    trust_store: bool,
    started: float,
) -> StoredArtifact:
    # A tag is resolved when it is opened, so what is opened is what all of this is about.
    with _opened(artifact_place, [*(each.root for each in candidates), store]) as source:
        for system in candidates:
            found = _safe_entry(system, identity_of(source))
            if found is None:
                continue
            if not found.shared or (may_write(system.owner) and not trust_store):
                found.hold.close()
                return Store(system.root).install_from(source, trust, reads=reads)
            try:
                return _authenticate_unhashed(found, source, trust, reads, started)
            except BaseException as error:
                found.hold.close()
                if not isinstance(error, AotcError) or not is_damage(error):
                    raise
                if system.stated or (store is not None and not os.access(system.root, os.W_OK)):
                    raise _damage_error(found.path, error) from None
        return Store(store).install_from(source, trust, reads=reads)


def _opened(artifact_place: Path, stores: Iterable[str | Path | None]) -> Container:
    """Open what is at a path, or of a digest in a registry that fails the copy that a store has."""
    try:
        return open_container(artifact_place)
    except AotcError as error:
        reference = stated_reference(artifact_place)
        if reference is None or error.code not in UNREACHED:
            raise
        from aotc.registry.references import parse_reference

        named = parse_reference(reference)
        for store in stores if named.digest is not None else ():
            entry = entry_of_origin(Path(store or default_root()), named.digest or "")
            if entry is not None:
                copy = FolderContainer(entry)
                copy.origin = f"{named.repository_name}@{named.digest}"
                what = f"the store's copy is taken, with the attestations it has: {error.line()}"
                copy.findings = (Finding(code="AOTC-I219", what=what, where=reference),)
                return copy
        raise


def _candidates(store: str | Path | None, *, trust_store: bool) -> Iterator[SystemStore]:
    """Existing stores to search before the user's own."""
    root = Path(store) if store is not None else system_root()
    if root is None or not can_check_owners():
        return
    stated = store is None and "AOTC_SYSTEM_STORE" in os.environ
    if not stated and not root.is_dir():
        return
    owner = system_owner()
    # A named store that would be hashed again anyway needs no special treatment.
    if store is None or trust_store or not may_write(owner):
        yield SystemStore(root, owner, stated)


def _safe_entry(system: SystemStore, artifact_id: str) -> SafeEntry | None:
    """The entry, if it is safe; None if there is none, or the store is ignored.

    Raises AOTC-R016 if a stated store is not safe.
    """
    name = f"{ID_PREFIX}{artifact_id}"
    try:
        root = open_folder(system.root, (system.owner,))
    except Unsafe as error:
        if system.stated:
            raise _unsafe_error(error) from None
        return None
    except OSError as error:
        if system.stated and not isinstance(error, FileNotFoundError):
            raise _unreadable_error(error, system.root) from None
        return None
    try:
        entry_hold = hold(system.root / name)
        if entry_hold is None:
            return None
        try:
            return _require_safe_entry(system, name, root, entry_hold)
        except BaseException as error:
            entry_hold.close()
            if isinstance(error, AotcError | Unsafe) and not system.stated:
                return None
            if isinstance(error, Unsafe):
                raise _unsafe_error(error) from None
            if isinstance(error, OSError):
                raise _unreadable_error(error, system.root / name) from None
            raise
    finally:
        os.close(root)


def _require_safe_entry(
    system: SystemStore, name: str, root: int, entry_hold: Hold
) -> SafeEntry | None:
    """The held entry, once everything in it is found safe; None if it was replaced."""
    path = system.root / name
    # The held folder must be the one with this name in the checked folder.
    below = os.stat(name, dir_fd=root, follow_symlinks=False)
    found = os.fstat(entry_hold.descriptor)
    if (below.st_dev, below.st_ino) != (found.st_dev, found.st_ino):
        entry_hold.close()
        return None
    sizes = sizes_below(entry_hold.descriptor, path, (system.owner,))
    if not may_write(system.owner):
        require_owners(entry_hold.descriptor, path)
    return SafeEntry(path, entry_hold, sizes, is_shared(root))


def _authenticate_unhashed(
    entry: SafeEntry,
    source: Container,
    trust: Trust,
    reads: Reads,
    started: float,
) -> StoredArtifact:
    """Authenticate an entry without hashing it: signatures, documents, names and sizes."""
    wanted: list[str] = []

    def hash_nothing(manifest: Manifest) -> Collection[str]:
        wanted.extend(reads(manifest))
        return ()

    with FolderContainer(entry.path) as copy:
        authentic = authenticate(copy, trust, attestations=source, files_to_read=hash_nothing)
    sizes = {entry.path: entry.size for entry in authentic.manifest.files}
    for path in sorted(wanted):
        found = entry.sizes.get(f"{PAYLOAD}/{path}")
        if found != sizes[path]:
            raise AotcError(
                "AOTC-G005",
                "the size of a file in the store differs from the signed size",
                where=f"{PAYLOAD}/{path}",
                expected=f"{sizes[path]} bytes",
                found=f"{found} bytes",
            )
    if not is_still_at(entry.path, entry.hold.descriptor):
        raise AotcError(
            "AOTC-I001", "the entry of the store no longer exists", where=str(entry.path)
        )
    return stored_artifact(entry.path, authentic, entry.hold, started, hashed=False)


def _damage_error(entry: Path, damage: AotcError) -> AotcError:
    return AotcError(
        "AOTC-R006",
        "the copy in the system-wide store is damaged",
        where=str(entry),
        found=damage.line(),
        fix="As its owner, run 'aotc install --system' with the artifact again.",
        also=(damage,),
    )


def _unsafe_error(error: Unsafe) -> AotcError:
    return error.refusal("AOTC-R016", "the system-wide store", "AOTC_SYSTEM_STORE")


def _unreadable_error(error: OSError, path: Path) -> AotcError:
    return AotcError(
        "AOTC-R016",
        f"the system-wide store cannot be read: {error.strerror}",
        where=str(path),
        fix="Have its owner make it readable for this user.",
    )


# What this process could do to a store despite its owner and modes.


# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETUID, CAP_SYS_ADMIN (capabilities(7)).
_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 3, 7, 21))
# File systems that report one owner for everything, or what another machine reports.
_OWNERLESS: Final = frozenset(
    {"9p", "cifs", "exfat", "fuse", "fuseblk", "hfs", "hfsplus", "msdos", "ntfs", "ntfs3"}
    | {"prl_fs", "smb3", "smbfs", "vboxsf", "vfat", "vmhgfs"}
)


def require_owners(folder: int, shown: Path) -> None:
    """Raise AOTC-R016 if the folder's file system is known not to keep owners; best effort."""
    kind = _file_system(folder)
    if kind.partition(".")[0] in _OWNERLESS:
        raise AotcError(
            "AOTC-R016",
            "the store is on a file system that does not keep owners",
            where=str(shown),
            expected="a local file system such as ext4 or xfs",
            found=kind,
        )


def may_write(owner: int) -> bool:
    """Whether this process could change what only `owner` and root may write."""
    users = os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())
    return bool({ROOT_USER, owner} & set(users)) or bool(_effective_capabilities() & _CAPABILITIES)


def is_shared(folder: int) -> bool:
    """Whether others than its owner may search an open folder, such as a system-wide store."""
    return bool(os.fstat(folder).st_mode & 0o011)


def _effective_capabilities() -> int:
    """This process's effective capabilities as bits; 0 if the system does not report them."""
    try:
        status = Path("/proc/self/status").read_text("utf-8", "replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.partition(":")[2], 16)
    return 0


def _file_system(folder: int) -> str:
    """The type of an open folder's file system; "" if the system does not report it."""
    try:
        mount = mount_of(file_info(folder))
    except OSError:
        return ""
    return "" if mount is None else mount.kind
