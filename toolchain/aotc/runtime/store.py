"""The per-user store: verified artifacts, by the digest of their aotc.json, read-only.

What is verified is what is loaded: an artifact is copied while it is verified (or cloned, and
the clone verified), and models are opened from the copy alone, so that a later change of the
source has no effect.  Nothing is synced to disk: every load checks the digests of the store's
copy again, and one that a power failure tore is installed anew.

    <root>/sha256-<artifact id>/    a complete artifact; files 0444, folders 0555
    <root>/.new-<random>/           being installed; locked by its installer while it lives
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from aotc.contract.manifest import Manifest
from aotc.contract.parsing import MAX_JSON_BYTES
from aotc.contract.trust import TrustedKey
from aotc.errors import AotcError
from aotc.runtime.draft import PREFIX, Draft, lock, remove, unwritable
from aotc.verification.container import Container
from aotc.verification.gate import AuthenticArtifact, authenticate

# A folder this old whose lock is free was left by a process that died.
STALE_SECONDS = 60.0
# Refusals that mean other bytes than were installed; others say something of reader or trust.
_OF_DAMAGE = frozenset(
    {
        *("AOTC-G003", "AOTC-G005", "AOTC-G006", "AOTC-G007", "AOTC-G008", "AOTC-G009"),
        *("AOTC-G012", "AOTC-G014", "AOTC-G015", "AOTC-I001"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArtifact:
    """A verified artifact in the store.  `folder` is its payload; `seconds` is what it took."""

    folder: Path
    authentic: AuthenticArtifact
    from_store: bool
    seconds: float


class Store:
    """A folder of verified artifacts: `root`, or $AOTC_STORE, or the user's cache."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()

    def install(
        self,
        path: str | Path,
        keys: Iterable[TrustedKey],
        *,
        reads: Callable[[Manifest], Collection[str]] | None = None,
    ) -> StoredArtifact:
        """Verify the artifact at `path` into the store, or verify the store's copy of it again.

        `reads` says which payload files of a copy the caller will read; then the digests of those
        alone are checked again, and the caller must read no others.
        The copy is found by the digest of the source's aotc.json; then signatures are read from
        the source, and the payload from the store only.  A damaged copy is replaced from the
        source.
        Raises the gate's refusals of the source, R006 where the copy is damaged and the source
        is refused too, R007 where the store cannot be written.
        """
        started = time.perf_counter()
        trust = tuple(keys)
        with Container(Path(path)) as source:
            entry = self.root / f"sha256-{_identity(source)}"
            damage: AotcError | None = None
            if entry.is_dir():
                try:
                    return _stored(entry, _authenticate_entry(entry, source, trust, reads), started)
                except AotcError as error:
                    if not _is_damage(error):
                        raise
                    damage = error
            self._prepare()
            try:
                authentic, entry = self._install(source, trust)
            except AotcError as error:
                if damage is None or error.code == "AOTC-R007":
                    raise
                raise AotcError(
                    "AOTC-R006",
                    "the store's copy is damaged, and the source is refused too",
                    where=str(entry),
                    found=damage.line(),
                    also=(damage, error),
                ) from None
        return _stored(entry, authentic, started, from_store=False)

    def _install(
        self, source: Container, trust: tuple[TrustedKey, ...]
    ) -> tuple[AuthenticArtifact, Path]:
        draft = Draft(self.root)
        try:
            if draft.clone(source):
                with Container(draft.folder) as clone:
                    authentic = authenticate(clone, trust)
            else:
                draft.clear()
                authentic = authenticate(source, trust, sink=draft)
            draft.seal()
            entry = self.root / f"sha256-{authentic.id}"
            return self._publish(draft, entry, authentic, trust), entry
        except OSError as error:
            raise unwritable(error, self.root) from None
        finally:
            draft.discard()

    def _publish(
        self,
        draft: Draft,
        entry: Path,
        authentic: AuthenticArtifact,
        trust: tuple[TrustedKey, ...],
    ) -> AuthenticArtifact:
        """Rename into place; where another installer was faster, its copy must verify as well."""
        for _ in range(8):
            try:
                draft.folder.rename(entry)
                return authentic
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            try:
                with Container(entry) as other, Container(draft.folder) as own:
                    return authenticate(other, trust, attestations=own)
            except AotcError:
                # Damaged, or just taken away by another installer: make room for ours.
                old = self.root / f"{PREFIX}{secrets.token_hex(8)}"
                try:
                    entry.rename(old)
                except FileNotFoundError:
                    continue
                remove(old)
        raise AotcError("AOTC-R006", "the store's copy stays damaged", where=str(entry))

    def _prepare(self) -> None:
        """Make the root, and remove what dead installers left."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            leftovers = [each for each in self.root.iterdir() if each.name.startswith(PREFIX)]
        except OSError as error:
            raise unwritable(error, self.root) from None
        for folder in leftovers:
            try:
                old = time.time() - folder.stat().st_mtime > STALE_SECONDS
                descriptor = lock(folder) if old else None
            except OSError:
                continue
            if descriptor is not None:
                remove(folder)
                os.close(descriptor)


def default_root() -> Path:
    """$AOTC_STORE, or aotc/store in $XDG_CACHE_HOME or ~/.cache; raises R007 with no home."""
    stated = os.environ.get("AOTC_STORE")
    if stated:
        return Path(stated)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if cache and Path(cache).is_absolute():
        return Path(cache) / "aotc" / "store"
    try:
        return Path.home() / ".cache" / "aotc" / "store"
    except RuntimeError:
        raise AotcError("AOTC-R007", "this user has no home folder for a store") from None


def _identity(source: Container) -> str:
    """sha256 of the source's aotc.json as it is now: only a name to look for, no claim."""
    try:
        return hashlib.sha256(source.read("payload/aotc.json", MAX_JSON_BYTES)).hexdigest()
    except AotcError as error:
        if error.code != "AOTC-G006":
            raise
        return "none"  # No entry has this name; the gate says what is wrong.


def _is_damage(error: AotcError) -> bool:
    """Whether a refusal of the store's payload with the source's signatures is the payload's."""
    return any(
        each.code in _OF_DAMAGE and not each.where.startswith("attestations")
        for each in (error, *error.also)
    )


def _authenticate_entry(
    entry: Path,
    source: Container,
    trust: tuple[TrustedKey, ...],
    reads: Callable[[Manifest], Collection[str]] | None,
) -> AuthenticArtifact:
    with Container(entry) as stored:
        return authenticate(stored, trust, attestations=source, reads=reads)


def _stored(
    entry: Path, authentic: AuthenticArtifact, started: float, *, from_store: bool = True
) -> StoredArtifact:
    return StoredArtifact(
        folder=entry / "payload",
        authentic=authentic,
        from_store=from_store,
        seconds=time.perf_counter() - started,
    )
