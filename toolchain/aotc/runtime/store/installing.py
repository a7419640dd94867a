"""Installs artifacts for later loads: verified, written to disk, with their attestations.

An artifact that is in the store already is hashed again, and replaced if it is damaged.  New
attestations are added to it, each under an unused name; the payload and existing attestations are
never changed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS, FOLDER
from aotc.base.interruptions import uninterrupted
from aotc.runtime.store.entries import exclusive, unwritable
from aotc.runtime.store.publication import Draft, remove_leftovers
from aotc.runtime.store.user_store import Store, StoredArtifact
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX
from aotc.spec.command_reports import InstallReport
from aotc.spec.trust_anchors import TrustedKey
from aotc.spec.versions import artifact_name, artifact_path
from aotc.trust.container import MAX_BUNDLES, Container, FolderContainer, reread
from aotc.trust.dsse import MAX_BUNDLE_BYTES
from aotc.trust.gate import authenticate
from aotc.trust.opening import open_container
from aotc.trust.policy.host_trust import Trust
from aotc.trust.stores import default_root, system_root


@uninterrupted
def install(
    artifact: str | Path,
    keys: Trust | Iterable[TrustedKey],
    *,
    store: str | Path | None = None,
    system: bool = False,
) -> InstallReport:
    """Verify an artifact, a folder or packed, into a store; it is on the disk afterwards.

    `store` is the store's folder, `system` stands for the system-wide one (see
    `aotc.runtime.store.system_store`); with neither, it is the user's own. A store that is created
    here is readable by everyone, the user's own only by the user. Leftovers of dead installers are
    removed. Raises the gate's refusals, AOTC-R006, R007, and R016 if others may change the store.
    """
    started = time.perf_counter()
    trust = Trust.of(keys)
    target_store = chosen_store(store, system=system)
    artifact_place = artifact_path(artifact)

    def install_once() -> tuple[StoredArtifact, tuple[str, ...]]:
        with open_container(artifact_place) as source:
            return install_entry(target_store, source, trust)

    stored, added = reread(artifact_place, install_once)
    manifest = stored.authentic.manifest
    return InstallReport(
        artifact=artifact_name(artifact),
        artifact_id=stored.authentic.id,
        name=manifest.name,
        store=str(target_store.root),
        folder=str(stored.folder.parent),
        installed=not stored.from_store,
        attestations=added,
        bytes=sum(file.size for file in manifest.files),
        findings=stored.authentic.findings,
        seconds=time.perf_counter() - started,
    )


def install_entry(
    target_store: Store, source: Container, trust: Trust
) -> tuple[StoredArtifact, tuple[str, ...]]:
    """The entry, and the names of the attestations that were added to it; raises as `install`."""
    stored = target_store.install_from(source, trust, durable=True)
    try:
        remove_leftovers(target_store.root)
    except OSError as error:
        raise unwritable(error, target_store.root) from None
    return stored, _add_attestations(target_store.root, stored, source, trust)


def chosen_store(store: str | Path | None, *, system: bool) -> Store:
    """The chosen store: readable by others unless it is the user's own; raises AOTC-I027."""
    return Store(chosen_root(store, system=system), shared=system or store is not None)


def chosen_root(store: str | Path | None, *, system: bool) -> Path:
    """The folder of the chosen store; raises AOTC-I027 if there is no system-wide one."""
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
    """Add bundles of the source that the entry lacks; returns their names.

    They are first copied to a draft together with the existing ones, and judged there: bundles with
    which the entry would be refused are not added.
    """
    entry = stored.folder.parent
    with exclusive(root), FolderContainer(entry) as own_container:
        present = _bundles(own_container)
        digests = {hashlib.sha256(data).digest() for data in present.values()}
        new_bundles: dict[str, bytes] = {}
        for name, data in _bundles(source).items():
            digest = hashlib.sha256(data)
            if digest.digest() not in digests:
                digests.add(digest.digest())
                new_bundles[
                    _free_name(name, digest.hexdigest(), present.keys() | new_bundles.keys())
                ] = data
        if new_bundles and len(present) + len(new_bundles) > MAX_BUNDLES:
            raise AotcError(
                "AOTC-G012",
                "the store's entry would have more attestations than any reader accepts",
                where=str(entry),
                expected=f"at most {MAX_BUNDLES}",
                found=f"{len(present)}, and {len(new_bundles)} more",
                fix="Remove the entry with 'aotc store remove', and install again.",
            )
        if new_bundles:
            draft = Draft(root)
            try:
                _write_bundles(draft, present | new_bundles)
                with FolderContainer(draft.folder) as combined:
                    authenticate(
                        own_container, trust, attestations=combined, files_to_read=lambda _: ()
                    )
                _move_into(draft, stored.hold.descriptor, new_bundles)
            except OSError as error:
                raise unwritable(error, entry) from None
            finally:
                draft.discard()
    return tuple(sorted(new_bundles))


def _bundles(container: Container) -> dict[str, bytes]:
    """Bundles of an artifact by name, as they are now."""
    start = f"{ATTESTATIONS}/"
    return {
        path.removeprefix(start): container.read(path, MAX_BUNDLE_BYTES)
        for path in container.listing(ATTESTATIONS).files
        if path.endswith(BUNDLE_SUFFIX) and "/" not in path.removeprefix(start)
    }


def _free_name(name: str, digest: str, taken: Iterable[str]) -> str:
    """The given name, or one derived from it that is not taken."""
    if name not in taken:
        return name
    return f"{name.removesuffix(BUNDLE_SUFFIX)}-{digest[:16]}{BUNDLE_SUFFIX}"


def _write_bundles(draft: Draft, bundles: dict[str, bytes]) -> None:
    for name, data in bundles.items():
        writer = draft.open(f"{ATTESTATIONS}/{name}")
        try:
            writer.write(0, memoryview(data))
            os.fchmod(writer.descriptor, 0o444)
            os.fsync(writer.descriptor)
        finally:
            writer.close()


def _move_into(draft: Draft, entry: int, names: Iterable[str]) -> None:
    """Rename bundles, which are on the disk, into the open entry."""
    folder = os.open(ATTESTATIONS, FOLDER, dir_fd=entry)
    try:
        os.fchmod(folder, 0o755)
        try:
            with draft.open_subfolder(ATTESTATIONS) as source:
                for name in names:
                    os.rename(name, name, src_dir_fd=source, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            os.fchmod(folder, 0o555)
    finally:
        os.close(folder)
