"""Listing the build cache, and removing entries when it is too large."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

from aotc.caching.cache_folder import (
    STALE_SECONDS,
    locked_for_pruning,
    remove_entry,
    remove_leftovers,
    unusable,
)
from aotc.caching.entry import INDEX, KEY, SEAL, Damaged, read_index
from aotc.contract.results.cache_reports import CacheEntry, PruneReport
from aotc.errors import AotcError
from aotc.records import record

_SHARD = re.compile(r"[0-9a-f]{2}")


@record(kw_only=False)
class StoredEntry:
    """An entry on disk; times are seconds since 1970."""

    path: Path
    bytes: int
    created: float
    used: float


def stored_entries(root: Path) -> list[StoredEntry]:
    """All entries, the one used longest ago first; raises R014 if they cannot be listed."""
    try:
        found = [
            _stored_entry(entry)
            for shard in root.iterdir()
            if _SHARD.fullmatch(shard.name)
            for entry in _children(shard)
            if KEY.fullmatch(entry.name)
        ]
    except OSError as error:
        raise unusable(error, root) from None
    return sorted(
        (entry for entry in found if entry is not None),
        key=lambda entry: (entry.used, entry.path.name),
    )


def shown_entries(root: Path) -> tuple[CacheEntry, ...]:
    """All entries for display, the most recently used first; raises R014."""
    return tuple(
        entry for stored in reversed(stored_entries(root)) for entry in _shown_entry(stored)
    )


def prune(
    root: Path, limit: int, *, keep: str = "", stale_seconds: float = STALE_SECONDS
) -> PruneReport:
    """Remove leftovers, and the entries used longest ago until at most `limit` bytes remain.

    The entry with the key `keep` is removed last, only if it alone is larger than `limit`.
    Half-written folders are removed if they are `stale_seconds` old and nobody holds them.  Raises
    R014 if something cannot be removed.
    """
    with locked_for_pruning(root):
        try:
            leftovers = remove_leftovers(root, stale_seconds)
            entries = sorted(stored_entries(root), key=lambda entry: entry.path.name == keep)
            total = sum(entry.bytes for entry in entries)
            removed, freed = 0, 0
            for entry in entries:
                if total - freed <= limit:
                    break
                removed += remove_entry(entry.path, root)
                freed += entry.bytes
        except OSError as error:
            raise unusable(error, root) from None
    return PruneReport(
        folder=str(root.parent),
        removed=removed,
        removed_bytes=freed,
        leftovers=leftovers,
        kept=len(entries) - removed,
        kept_bytes=total - freed,
    )


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stored_entry(entry: Path) -> StoredEntry | None:
    """The entry at a path; None if it was removed meanwhile."""
    try:
        own = entry.lstat()
        created, used = (_modified_at(entry / name, own.st_mtime) for name in (INDEX, SEAL))
        return StoredEntry(entry, sum(_file_sizes(entry)), created, used)
    except FileNotFoundError:
        return None


def _modified_at(path: Path, otherwise: float) -> float:
    try:
        return path.lstat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return otherwise


def _file_sizes(path: Path) -> Iterator[int]:
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            yield from _file_sizes(child)
    else:
        yield path.lstat().st_size


def _shown_entry(entry: StoredEntry) -> Iterator[CacheEntry]:
    """The entry for display; nothing if it was removed meanwhile."""
    kind, files, title = "damaged", 0, ""
    try:
        index = read_index(entry.path, entry.path.name)
        kind, files = index.kind, len(index.files)
        if isinstance(index.document, dict):
            title = str(index.document.get("title", ""))
    except Damaged:
        if not entry.path.exists():
            return
    except AotcError:
        pass  # It cannot be read, but is listed.
    yield CacheEntry(
        key=entry.path.name,
        kind=kind,
        bytes=entry.bytes,
        created=_utc_text(entry.created),
        used=_utc_text(entry.used),
        files=files,
        title=title,
    )


def _utc_text(seconds: float) -> str:
    found = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return found.isoformat(timespec="seconds")
