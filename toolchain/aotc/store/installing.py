"""Installing for later loads: verified into a store for good, with its attestations.

An artifact that is in the store already is hashed again, and replaced where it is damaged.  New
attestations are added to it, each under a name that was not taken; nothing of the payload, and no
attestation that was there, is ever changed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from aotc.contract.artifact_names import artifact_path
from aotc.contract.attestation_kinds import BUNDLE_SUFFIX
from aotc.contract.results.store_reports import InstallReport
from aotc.contract.trust.anchors import TrustedKey
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS
from aotc.files.folders import FOLDER
from aotc.signing.dsse import MAX_BUNDLE_BYTES
from aotc.store.draft import Draft, remove_leftovers
from aotc.store.hold import alone, unwritable
from aotc.store.user_store import Store, StoredArtifact
from aotc.verification.container.base import MAX_BUNDLES, Container
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.container.opening import open_container
from aotc.verification.container.rereading import reread
from aotc.verification.gate import authenticate
from aotc.verification.policy.host_trust import Trust
from aotc.verification.stores import default_root, system_root


def install(
    artifact: str | Path,
    keys: Trust | Iterable[TrustedKey],
    *,
    store: str | Path | None = None,
    system: bool = False,
) -> InstallReport:
    """Verify an artifact, a folder or packed, into a store; whatever is copied is on the disk then.

    `store` is the store's folder, `system` the system-wide one (see `aotc.store.system_store`);
    with neither, the user's own.  A store that is made here may be read by all, the user's own by
    the user alone.
    What dead installers left half-written is removed.
    Raises the gate's refusals, R006, R007; R016 where others may change the store.
    """
    started = time.perf_counter()
    trust = Trust.of(keys)
    kept = Store(chosen_root(store, system=system), shared=system or store is not None)
    place = artifact_path(artifact)
    stored, added = reread(place, lambda: _installed(kept, place, trust))
    manifest = stored.authentic.manifest
    return InstallReport(
        artifact=str(artifact),
        artifact_id=stored.authentic.id,
        name=manifest.name,
        store=str(kept.root),
        folder=str(stored.folder.parent),
        installed=not stored.from_store,
        attestations=added,
        bytes=sum(each.size for each in manifest.files),
        findings=stored.authentic.findings,
        seconds=time.perf_counter() - started,
    )


def _installed(kept: Store, place: Path, trust: Trust) -> tuple[StoredArtifact, tuple[str, ...]]:
    """The entry, and the names of the attestations that were added to it."""
    stored = kept.install(place, trust, durable=True)
    try:
        remove_leftovers(kept.root)
    except OSError as error:
        raise unwritable(error, kept.root) from None
    with open_container(place) as source:
        return stored, _add_attestations(kept.root, stored, source, trust)


def chosen_root(store: str | Path | None, *, system: bool) -> Path:
    """The folder of the store that is meant; raises I027 where there is no system-wide one."""
    if not system:
        return Path(store) if store is not None else default_root()
    root = system_root()
    if root is None:
        raise AotcError(
            "AOTC-I027",
            "there is no system-wide store: AOTC_SYSTEM_STORE is empty",
            where="--system",
            fix="Name its folder in AOTC_SYSTEM_STORE, or give --store.",
        )
    return root


def _add_attestations(
    root: Path, stored: StoredArtifact, source: Container, trust: Trust
) -> tuple[str, ...]:
    """Add bundles of the source that the entry has not; their names.

    They are copied beside first, with those that are there, and judged together: what would have
    the entry refused is not added.
    """
    entry = stored.folder.parent
    with alone(root), FolderContainer(entry) as own:
        present = _bundles(own)
        digests = {hashlib.sha256(data).digest() for data in present.values()}
        fresh: dict[str, bytes] = {}
        for name, data in _bundles(source).items():
            digest = hashlib.sha256(data)
            if digest.digest() not in digests:
                digests.add(digest.digest())
                fresh[_free_name(name, digest.hexdigest(), present.keys() | fresh.keys())] = data
        if fresh and len(present) + len(fresh) > MAX_BUNDLES:
            raise AotcError(
                "AOTC-G012",
                "the store's entry would hold more attestations than any reader takes",
                where=str(entry),
                expected=f"at most {MAX_BUNDLES}",
                found=f"{len(present)}, and {len(fresh)} more",
                fix="Remove the entry with 'aotc store remove', and install again.",
            )
        if fresh:
            draft = Draft(root)
            try:
                _write(draft, present | fresh)
                with FolderContainer(draft.folder) as together:
                    authenticate(own, trust, attestations=together, files_to_read=lambda _: ())
                _move(draft, stored.hold.descriptor, fresh)
            except OSError as error:
                raise unwritable(error, entry) from None
            finally:
                draft.discard()
    return tuple(sorted(fresh))


def _bundles(container: Container) -> dict[str, bytes]:
    """Bundles of an artifact by their names, as they are now."""
    start = f"{ATTESTATIONS}/"
    return {
        path.removeprefix(start): container.read(path, MAX_BUNDLE_BYTES)
        for path in container.listing(ATTESTATIONS).files
        if path.endswith(BUNDLE_SUFFIX) and "/" not in path.removeprefix(start)
    }


def _free_name(name: str, digest: str, taken: Iterable[str]) -> str:
    """A name that says what the bundle is, as the given one does, and is not taken."""
    if name not in taken:
        return name
    return f"{name.removesuffix(BUNDLE_SUFFIX)}-{digest[:16]}{BUNDLE_SUFFIX}"


def _write(draft: Draft, bundles: dict[str, bytes]) -> None:
    for name, data in bundles.items():
        writer = draft.open(f"{ATTESTATIONS}/{name}")
        try:
            writer.write(0, memoryview(data))
            os.fchmod(writer.descriptor, 0o444)
            os.fsync(writer.descriptor)
        finally:
            writer.close()


def _move(draft: Draft, entry: int, names: Iterable[str]) -> None:
    """Rename bundles, which are on the disk, into the open entry."""
    folder = os.open(ATTESTATIONS, FOLDER, dir_fd=entry)
    try:
        os.fchmod(folder, 0o755)
        try:
            with draft.below(ATTESTATIONS) as source:
                for name in names:
                    os.rename(name, name, src_dir_fd=source, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            os.fchmod(folder, 0o555)
    finally:
        os.close(folder)
