"""The store: verified artifacts, by the digest of their aotc.json, read-only.

What is verified is what is loaded: an artifact is verified while it is copied (or cloned, and the
clone verified), and models are only opened from the copy, so that a later change of the source has
no effect.  In a store that only its owner may search, nothing is synced to disk: every load checks
the digests of the copy again, and replaces one that a power failure damaged.  `system_store` tells
when they are not checked again.

    <root>/sha256-<artifact id>/    a complete artifact; files 0444, folders 0555
    <root>/accepted-<id>.json       fixtures that matched in earlier loads; 0600
    <root>/pulled-<digest>-<id>     which artifact a manifest of a registry is of; empty
    <root>/.new-<random>/           being installed, or removed; locked while its process lives
    <root>/.lock                    held while pruning, or adding attestations
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD, PRIVATE, SHARED
from aotc.base.interruptions import uninterrupted
from aotc.base.records import record
from aotc.runtime.store.entries import (
    Hold,
    entry_path,
    hold,
    origin_path,
    require_ours,
    unwritable,
)
from aotc.spec.json import MAX_JSON_BYTES
from aotc.spec.manifest import Manifest
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust.container import Container, FolderContainer
from aotc.trust.gate import AuthenticArtifact, authenticate
from aotc.trust.opening import open_container
from aotc.trust.policy.host_trust import Trust
from aotc.trust.stores import default_root, require_safe

# Refusals that mean damaged bytes; others are about the reader or about trust.
_DAMAGE_CODES = frozenset(
    {
        *("AOTC-G003", "AOTC-G005", "AOTC-G006", "AOTC-G007", "AOTC-G008", "AOTC-G009"),
        *("AOTC-G012", "AOTC-G014", "AOTC-G015", "AOTC-I001", "AOTC-R016"),
    }
)

Reads = Callable[[Manifest], Collection[str]]


@record
class StoredArtifact:
    """A verified artifact in the store; `folder` is its payload, `seconds` the time it took.

    While `hold` is open, the entry is not removed.  `hashed`: the digests of the files to read were
    checked now, and not only at install.
    """

    folder: Path
    authentic: AuthenticArtifact
    from_store: bool
    seconds: float
    hold: Hold
    hashed: bool = True

    def close(self) -> None:
        """Release the entry."""
        self.hold.close()


class Store:
    """A folder of verified artifacts: `root`, by default $AOTC_STORE or the user's cache.

    `shared` creates a new one readable for others.
    """

    def __init__(self, root: str | Path | None = None, *, shared: bool = False) -> None:
        self.root = (Path(root) if root is not None else default_root()).absolute()
        self._mode = SHARED if shared else PRIVATE

    @uninterrupted
    def install(
        self,
        path: str | Path,
        keys: Trust | Iterable[TrustedKey],
        *,
        reads: Reads | None = None,
        durable: bool = False,
    ) -> StoredArtifact:
        """Verify the artifact at `path` into the store, or verify the store's copy of it again.

        `reads` returns the payload files of a copy that the caller will read; then only their
        digests are checked again, and the caller must not read others.  `durable`: what is copied
        is on the disk afterwards, as it always is in a store that others may search.  The copy is
        found by the digest of the source's aotc.json; then signatures are read from the source, and
        the payload only from the store.  A damaged copy, and one that others may change, is
        replaced from the source.  Raises the gate's refusals of the source, AOTC-R006 if the copy
        is damaged and the source is refused too, R007 if the store cannot be written, R016 if
        others may change it.
        """
        with open_container(Path(path)) as source:
            return self.install_from(source, keys, reads=reads, durable=durable)

    def install_from(
        self,
        source: Container,
        keys: Trust | Iterable[TrustedKey],
        *,
        reads: Reads | None = None,
        durable: bool = False,
    ) -> StoredArtifact:
        """The same for an artifact that is open."""
        started = time.perf_counter()
        trust = Trust.of(keys)
        try:
            require_safe(self.root)
        except OSError as error:
            raise unwritable(error, self.root) from None
        entry = self.entry(identity_of(source))
        damage: AotcError | None = None
        entry_hold = hold(entry)
        if entry_hold is not None:
            try:
                require_ours(entry, entry_hold)
                with FolderContainer(entry) as copy:
                    authentic = authenticate(copy, trust, attestations=source, files_to_read=reads)
                self._note_origin(source, authentic.id)
                return stored_artifact(entry, authentic, entry_hold, started)
            except AotcError as error:
                entry_hold.close()
                if not is_damage(error):
                    raise
                damage = error
            except BaseException:
                entry_hold.close()
                raise
        # A load that finds its artifact does not import what writes to a store.
        from aotc.runtime.store.publication import Publication

        publication = Publication(self.root, self._mode)
        try:
            authentic, entry_hold = publication.install(source, trust, durable=durable)
        except AotcError as error:
            if damage is not None and (damage.code, error.code) == ("AOTC-R016", "AOTC-R007"):
                # Without write access the copy cannot be replaced: report its damage.
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
        self._note_origin(source, authentic.id)
        return stored_artifact(
            self.entry(authentic.id), authentic, entry_hold, started, from_store=False
        )

    def _note_origin(self, source: Container, artifact_id: str) -> None:
        """Remember which artifact the manifest of a registry is of, where the store is writable."""
        if source.origin:
            with suppress(OSError):
                origin_path(self.root, source.origin.partition("@")[2], artifact_id).touch()

    def entry(self, artifact_id: str) -> Path:
        """The folder of the artifact with this id, whether or not it exists."""
        return entry_path(self.root, artifact_id)


def identity_of(source: Container) -> str:
    """The sha256 of the source's aotc.json as it is now: a name to look for, not a claim."""
    try:
        return hashlib.sha256(source.read(MANIFEST, MAX_JSON_BYTES)).hexdigest()
    except AotcError as error:
        if error.code != "AOTC-G006":
            raise
        return "none"  # No entry has this name; the gate reports what is wrong.


def is_damage(error: AotcError) -> bool:
    """Whether a refusal, with the source's signatures, is about the store's payload."""
    return any(
        refusal.code in _DAMAGE_CODES and not refusal.where.startswith(ATTESTATIONS)
        for refusal in (error, *error.also)
    )


def stored_artifact(
    entry: Path,
    authentic: AuthenticArtifact,
    entry_hold: Hold,
    started: float,
    *,
    from_store: bool = True,
    hashed: bool = True,
) -> StoredArtifact:
    """A verified entry as it is returned to a load; `started` is from `time.perf_counter`."""
    entry_hold.touch()
    return StoredArtifact(
        folder=entry / PAYLOAD,
        authentic=authentic,
        from_store=from_store,
        seconds=time.perf_counter() - started,
        hold=entry_hold,
        hashed=hashed,
    )
