"""Loads from a store that somebody else installs into: verified at install, not hashed again.

A load takes its artifact from a system-wide store where that has it: $AOTC_SYSTEM_STORE (empty:
none), else /var/lib/aotc/store; where a load names its store, that one is looked at alone.  The
entry's owner is root, or the user that $AOTC_SYSTEM_STORE_OWNER names.  Digests of an entry are
not checked again where

  - only its owner, or root, may change it, with every folder that leads to it;
  - this process can be neither, and its file system keeps owners;
  - the store's folder is one that others may search: what is installed into such a one is on the
    disk before it has its name.

Signatures are checked, with aotc.json, manifest.json, the list of files and their sizes; so what
trust, policy and revocation say counts, and so does the fit to this host.  A process of the owner
or of root checks the digests again, unless the load says that it trusts the store.  A store that
others may change is passed over, and refused (R016) where $AOTC_SYSTEM_STORE names it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aotc.contract.artifact_names import ID_PREFIX, artifact_path, stated_id
from aotc.contract.manifest.document import Manifest
from aotc.contract.trust.anchors import TrustedKey
from aotc.errors import AotcError
from aotc.files.artifact_layout import PAYLOAD
from aotc.files.ownership import ROOT_USER, Unsafe, can_check_owners, open_folder, sizes_below
from aotc.records import record
from aotc.store.capability import is_shared, may_write, require_owners
from aotc.store.hold import Hold, hold, leads_to
from aotc.store.user_store import Reads, Store, StoredArtifact, identity_of, is_damage, stored
from aotc.verification.container.base import Container
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.container.opening import open_container, other_artifact
from aotc.verification.container.rereading import reread
from aotc.verification.gate import authenticate
from aotc.verification.policy.host_trust import Trust
from aotc.verification.stores import default_root, entry_path, system_owner, system_root


@record(kw_only=False)
class SystemStore:
    """A folder that may be a system-wide store; `stated`: the environment says that it is."""

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
    """An artifact to load: from a system-wide store that has it, else through the user's.

    `path` is an artifact, or the name `sha256-<id>` of an entry.  `reads` says which payload files
    the caller will read; it must read no others.  `store` names the one store to use.
    `trust_store` takes the store's word even where this process could change it.
    Raises what `Store.install` raises; R016 for a store that is named as system-wide and is not
    safe; R006 where its copy is damaged.
    """
    started = time.perf_counter()
    trust = Trust.of(keys)
    candidates = list(_candidates(store, trust_store=trust_store))
    asked = stated_id(path)
    if asked is None:
        place = artifact_path(path)
        return reread(
            place, lambda: _take(place, trust, candidates, reads, store, trust_store, started)
        )
    roots = [*(each.root for each in candidates), Path(store or default_root())]
    entry = entry_path(asked, roots)
    found = _take(entry, trust, candidates, reads, store, trust_store, started)
    if found.authentic.id != asked:
        found.hold.close()
        raise other_artifact(entry, asked, found.authentic.id)
    return found


def _take(
    place: Path,
    trust: Trust,
    candidates: list[SystemStore],
    reads: Reads,
    store: str | Path | None,
    trust_store: bool,
    started: float,
) -> StoredArtifact:
    for system in candidates:
        with open_container(place) as source:
            found = _safe_entry(system, identity_of(source))
            if found is None:
                continue
            if not found.shared or (may_write(system.owner) and not trust_store):
                found.hold.close()
                return Store(system.root).install(place, trust, reads=reads)
            try:
                with _let_go(found.hold):
                    return _vouched(found, source, trust, reads, started)
            except AotcError as error:
                if not is_damage(error):
                    raise
                if system.stated or (store is not None and not os.access(system.root, os.W_OK)):
                    raise _damaged(found.path, error) from None
    return Store(store).install(place, trust, reads=reads)


def _candidates(store: str | Path | None, *, trust_store: bool) -> Iterator[SystemStore]:
    """Stores to look into before the user's own; none that is not there."""
    root = Path(store) if store is not None else system_root()
    if root is None or not can_check_owners():
        return
    stated = store is None and "AOTC_SYSTEM_STORE" in os.environ
    if not stated and not root.is_dir():
        return
    owner = system_owner()
    # A store that is named, and would be hashed again in any case, is as any other.
    if store is None or trust_store or not may_write(owner):
        yield SystemStore(root, owner, stated)


def _safe_entry(system: SystemStore, artifact_id: str) -> SafeEntry | None:
    """The entry, once it is found safe; None where there is none, or the store is passed over.

    Raises R016 where a stated store is not safe.
    """
    name = f"{ID_PREFIX}{artifact_id}"
    try:
        root = open_folder(system.root, (system.owner,))
    except Unsafe as error:
        if system.stated:
            raise _unsafe(error) from None
        return None
    except OSError as error:
        if system.stated and not isinstance(error, FileNotFoundError):
            raise _unreadable(error, system.root) from None
        return None
    try:
        held = hold(system.root / name)
        if held is None:
            return None
        try:
            return _checked(system, name, root, held)
        except BaseException as error:
            held.close()
            if isinstance(error, AotcError | Unsafe) and not system.stated:
                return None
            if isinstance(error, Unsafe):
                raise _unsafe(error) from None
            if isinstance(error, OSError):
                raise _unreadable(error, system.root / name) from None
            raise
    finally:
        os.close(root)


def _checked(system: SystemStore, name: str, root: int, held: Hold) -> SafeEntry | None:
    """The entry that is held, once all of it is found safe; None where it is no longer there."""
    path = system.root / name
    # What is held must be what the folder that was checked calls by this name.
    below = os.stat(name, dir_fd=root, follow_symlinks=False)
    found = os.fstat(held.descriptor)
    if (below.st_dev, below.st_ino) != (found.st_dev, found.st_ino):
        held.close()
        return None
    sizes = sizes_below(held.descriptor, path, (system.owner,))
    if not may_write(system.owner):
        require_owners(held.descriptor, path)
    return SafeEntry(path, held, sizes, is_shared(root))


def _vouched(
    entry: SafeEntry,
    source: Container,
    trust: Trust,
    reads: Reads,
    started: float,
) -> StoredArtifact:
    """The gate on an entry that is not hashed: signatures, documents, names and sizes."""
    wanted: list[str] = []

    def nothing(manifest: Manifest) -> Collection[str]:
        wanted.extend(reads(manifest))
        return ()

    with FolderContainer(entry.path) as copy:
        authentic = authenticate(copy, trust, attestations=source, files_to_read=nothing)
    sizes = {each.path: each.size for each in authentic.manifest.files}
    for path in sorted(wanted):
        found = entry.sizes.get(f"{PAYLOAD}/{path}")
        if found != sizes[path]:
            raise AotcError(
                "AOTC-G005",
                "a file of the store has another size than was signed",
                where=f"{PAYLOAD}/{path}",
                expected=f"{sizes[path]} bytes",
                found=f"{found} bytes",
            )
    if not leads_to(entry.path, entry.hold.descriptor):
        raise AotcError("AOTC-I001", "the entry of the store is gone", where=str(entry.path))
    return stored(entry.path, authentic, entry.hold, started, hashed=False)


@contextmanager
def _let_go(held: Hold) -> Iterator[None]:
    """Let an entry go where what is done with it fails."""
    try:
        yield
    except BaseException:
        held.close()
        raise


def _damaged(entry: Path, damage: AotcError) -> AotcError:
    return AotcError(
        "AOTC-R006",
        "the copy in the system-wide store is damaged",
        where=str(entry),
        found=damage.line(),
        fix="As its owner, run 'aotc install --system' with the artifact again.",
        also=(damage,),
    )


def _unsafe(error: Unsafe) -> AotcError:
    return error.refusal("AOTC-R016", "the system-wide store", "AOTC_SYSTEM_STORE")


def _unreadable(error: OSError, path: Path) -> AotcError:
    return AotcError(
        "AOTC-R016",
        f"the system-wide store cannot be read: {error.strerror}",
        where=str(path),
        fix="Have its owner make it readable for this user.",
    )
