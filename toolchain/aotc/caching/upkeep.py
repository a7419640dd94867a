"""What the build cache holds, and what goes when it holds too much."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

from aotc.caching.cache_folder import STALE_SECONDS, alone, remove, remove_leftovers, unusable
from aotc.caching.entry import INDEX, KEY, SEAL, Damaged, read_index
from aotc.contract.results.cache_reports import CacheEntry, PruneReport
from aotc.errors import AotcError
from aotc.records import record

_SHARD = re.compile(r"[0-9a-f]{2}")


@record(kw_only=False)
class Held:
    """An entry as it lies on the disk; times are seconds since 1970."""

    path: Path
    bytes: int
    created: float
    used: float


def held(root: Path) -> list[Held]:
    """All entries, the one used longest ago first; raises R014 where they cannot be listed."""
    try:
        found = [
            _weighed(entry)
            for shard in root.iterdir()
            if _SHARD.fullmatch(shard.name)
            for entry in _inside(shard)
            if KEY.fullmatch(entry.name)
        ]
    except OSError as error:
        raise unusable(error, root) from None
    return sorted(
        (each for each in found if each is not None), key=lambda each: (each.used, each.path.name)
    )


def listed(root: Path) -> tuple[CacheEntry, ...]:
    """All entries as they are shown, the one used last first; raises R014."""
    return tuple(entry for each in reversed(held(root)) for entry in _described(each))


def prune(
    root: Path, limit: int, *, keep: str = "", stale_seconds: float = STALE_SECONDS
) -> PruneReport:
    """Remove what was used longest ago until at most `limit` bytes are left, and leftovers.

    The entry of the key `keep` goes last, only where it alone is larger.  Half-written folders go
    where they are `stale_seconds` old and nobody holds them.  Raises R014 where something cannot
    be removed.
    """
    with alone(root):
        try:
            leftovers = remove_leftovers(root, stale_seconds)
            entries = sorted(held(root), key=lambda each: each.path.name == keep)
            total = sum(each.bytes for each in entries)
            removed, freed = 0, 0
            for each in entries:
                if total - freed <= limit:
                    break
                removed += remove(each.path, root)
                freed += each.bytes
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


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _weighed(entry: Path) -> Held | None:
    """None for an entry that is gone meanwhile."""
    try:
        own = entry.lstat()
        created, used = (_changed(entry / name, own.st_mtime) for name in (INDEX, SEAL))
        return Held(entry, sum(_sizes(entry)), created, used)
    except FileNotFoundError:
        return None


def _changed(path: Path, otherwise: float) -> float:
    try:
        return path.lstat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return otherwise


def _sizes(path: Path) -> Iterator[int]:
    if path.is_dir() and not path.is_symlink():
        for each in path.iterdir():
            yield from _sizes(each)
    else:
        yield path.lstat().st_size


def _described(entry: Held) -> Iterator[CacheEntry]:
    """The entry as it is shown; nothing where it is gone meanwhile."""
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
        pass  # It may not be read; it is listed all the same.
    yield CacheEntry(
        key=entry.path.name,
        kind=kind,
        bytes=entry.bytes,
        created=_moment(entry.created),
        used=_moment(entry.used),
        files=files,
        title=title,
    )


def _moment(seconds: float) -> str:
    found = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return found.isoformat(timespec="seconds")
