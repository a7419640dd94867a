"""Lists a store's entries, and removes them by size and age, but never what is in use."""

from __future__ import annotations

import datetime
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.base.files.replacing import move_aside
from aotc.base.files.work_folders import name_with_owner
from aotc.base.records import record
from aotc.runtime.store.entries import (
    acceptance_path,
    exclusive,
    forget_origins,
    hold_exclusively,
    holders_of,
    unwritable,
)
from aotc.runtime.store.publication import PREFIX, remove, remove_leftovers
from aotc.spec.codec import ParseError
from aotc.spec.command_reports import StoreEntry, StoreListReport, StorePruneReport
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.versions import ID_PREFIX, stated_id
from aotc.trust.stores import require_safe

# Listing an entry does not count as use (open(2)); only its owner may use this flag.
_NO_ACCESS_TIME: Final = getattr(os, "O_NOATIME", 0)
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


@record(kw_only=False)
class Entry:
    """An artifact in a store; sizes in bytes, times in seconds since 1970."""

    path: Path
    bytes: int
    attestations: int
    installed: float
    used: float

    @property
    def artifact_id(self) -> str:
        """The id in the folder's name."""
        return self.path.name.removeprefix(ID_PREFIX)


def entries(root: Path) -> list[Entry]:
    """All entries, the least recently used first; empty if there is no store.

    Raises AOTC-R007, and R016 if others may change the store.
    """
    try:
        if not require_safe(root):
            return []
        found = [_read_entry(path) for path in root.iterdir() if stated_id(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unwritable(error, root) from None
    return sorted(
        (entry for entry in found if entry is not None),
        key=lambda entry: (entry.used, entry.path.name),
    )


def list_store(root: Path) -> StoreListReport:
    """The contents of a store, the most recently used first; raises as `entries` does."""
    found = entries(root)
    return StoreListReport(
        store=str(root),
        bytes=sum(entry.bytes for entry in found),
        entries=tuple(
            StoreEntry(
                artifact_id=entry.artifact_id,
                name=_name(entry.path / MANIFEST),
                bytes=entry.bytes,
                attestations=entry.attestations,
                installed_at=_iso_time(entry.installed),
                used_at=_iso_time(entry.used),
                in_use=_in_use(entry.path),
            )
            for entry in reversed(found)
        ),
    )


def prune(
    root: Path, *, limit: int | None = None, age: float | None = None, now: float | None = None
) -> StorePruneReport:
    """Remove entries by age, and the least recently used until at most `limit` bytes remain.

    `age` is in seconds since the last use, `now` in seconds since 1970; None means no limit, or the
    current time.  Entries in use stay, and count.  Half-written folders of dead processes are
    removed too.  Raises as `entries` does.
    """
    try:
        if not require_safe(root):
            return StorePruneReport(store=str(root))
    except OSError as error:
        raise unwritable(error, root) from None
    moment = time.time() if now is None else now
    with exclusive(root):
        leftovers = _remove_leftovers(root)
        found = entries(root)
        total = sum(entry.bytes for entry in found)
        removed: list[str] = []
        used: list[str] = []
        freed = 0
        for entry in found:
            old = age is not None and moment - entry.used > age
            if not old and (limit is None or total - freed <= limit):
                continue
            if _remove(entry.path, root):
                removed.append(entry.artifact_id)
                freed += entry.bytes
            else:
                used.append(entry.artifact_id)
    return StorePruneReport(
        store=str(root),
        removed=tuple(removed),
        removed_bytes=freed,
        leftovers=leftovers,
        in_use=tuple(used),
        kept=len(found) - len(removed),
        kept_bytes=total - freed,
    )


def remove_entry(root: Path, artifact_id: str) -> StorePruneReport:
    """Remove one artifact by its id, or by the first digits if they are unambiguous.

    Raises AOTC-I001 if there is none, I027 if there are several, R017 if it is in use, R007, R016.
    """
    digits = artifact_id.removeprefix(ID_PREFIX)
    before = entries(root)
    found = [entry for entry in before if digits and entry.artifact_id.startswith(digits)]
    if not found:
        raise AotcError(
            "AOTC-I001", "the store has no such artifact", where=f"{root}/{ID_PREFIX}{digits}"
        )
    if len(found) > 1:
        raise AotcError(
            "AOTC-I027",
            "several artifacts in the store have an id that begins with these digits",
            where=digits,
            found=", ".join(entry.artifact_id[:16] for entry in found),
            fix="Give more digits of the id.",
        )
    (entry,) = found
    with exclusive(root):
        if not _remove(entry.path, root):
            raise AotcError(
                "AOTC-R017",
                "the artifact is in use and was not removed",
                where=str(entry.path),
                found=holders_of(entry.path),
            )
    kept = [other for other in before if other is not entry]
    return StorePruneReport(
        store=str(root),
        removed=(entry.artifact_id,),
        removed_bytes=entry.bytes,
        kept=len(kept),
        kept_bytes=sum(other.bytes for other in kept),
    )


def _remove(entry: Path, root: Path) -> bool:
    """Rename an entry out of sight, and remove it; False if it is in use.

    An entry in a lower layer of an image cannot be moved, and is emptied in place, its aotc.json
    first.  What a dying process leaves is a leftover for the next prune.
    """
    entry_hold = hold_exclusively(entry)
    if entry_hold is None:
        return not entry.exists()
    try:
        old = root / name_with_owner(PREFIX)
        try:
            move_aside(entry, old)
        except OSError as error:
            raise unwritable(error, entry) from None
        remove(old)
        artifact_id = entry.name.removeprefix(ID_PREFIX)
        with suppress(OSError):
            acceptance_path(root, artifact_id).unlink()
        forget_origins(root, artifact_id)
    finally:
        entry_hold.close()
    return True


def _remove_leftovers(root: Path) -> int:
    try:
        return remove_leftovers(root) + sum(
            _remove(path, root)
            for path in list(root.iterdir())
            if stated_id(path.name) and _is_half_removed(path)
        )
    except OSError as error:
        raise unwritable(error, root) from None


def _is_half_removed(entry: Path) -> bool:
    """Whether an entry has lost its aotc.json, which is written first and removed first."""
    try:
        (entry / MANIFEST).lstat()
    except FileNotFoundError:
        return entry.is_dir()
    except OSError:
        return False
    return False


def _read_entry(path: Path) -> Entry | None:
    """The entry at `path`; None if it was removed meanwhile."""
    try:
        own = path.stat()
        payload = (path / PAYLOAD).stat()
        read = _last_read(path / MANIFEST)
        files = [file for file in path.rglob("*") if not file.is_dir()]
        bundles = [file for file in files if file.parent == path / ATTESTATIONS]
        return Entry(
            path=path,
            bytes=sum(file.lstat().st_size for file in files),
            attestations=len(bundles),
            installed=payload.st_mtime,
            used=max(own.st_mtime, read),
        )
    except OSError:
        if not path.exists():
            return None
        # Damaged or unreadable: it is listed, and may be removed.
        return Entry(path, 0, 0, path.lstat().st_mtime, path.lstat().st_mtime)


def _last_read(path: Path) -> float:
    """When a file was last read, by its file system: only the owner can record a use."""
    try:
        return path.lstat().st_atime
    except FileNotFoundError:
        return 0.0


def _name(manifest: Path) -> str:
    try:
        try:
            descriptor = os.open(manifest, _READ | _NO_ACCESS_TIME)
        except PermissionError:
            descriptor = os.open(manifest, _READ)
        with os.fdopen(descriptor, "rb") as file:
            document = strict_json(file.read(MAX_JSON_BYTES + 1))
    except (OSError, ParseError):
        return ""
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) else ""


def _in_use(entry: Path) -> bool:
    entry_hold = hold_exclusively(entry)
    if entry_hold is None:
        return entry.exists()
    entry_hold.close()
    return False


def _iso_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
