"""The build cache: folders of files, each named by the digest of everything it was made from.

    <folder>/v1/<first two digits of the key>/<key>/    one entry: see `read_index`
    <folder>/v1/.new-<owner>/                           a draft; locked while its writer lives
    <folder>/v1/lock                                    held by a process that prunes

The cache is optional: a build continues without it, and its report says why.  An entry is written
as a draft, renamed, and verified each time it is used: one that a crash, a disk or another process
damaged is removed and never used.  Nothing is synced to disk.
Objects may be used from several threads, and folders by several processes.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.pipeline.cache_folder import (
    DEFAULT_LIMIT,
    STALE_SECONDS,
    Copy,
    copy_all,
    default_folder,
    default_limit,
    draft,
    is_own,
    is_usable,
    locked_for_pruning,
    open_regular,
    remove_entry,
    remove_leftovers,
    unusable,
)
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.command_reports import CachedFile, CacheEntry, CacheIndex, PruneReport, chunk_count
from aotc.spec.json import MAX_JSON_BYTES, canonical_json, canonical_sha256, strict_json
from aotc.spec.payload import Finding

# Part of every key and entry: another format finds nothing that this one wrote.
FORMAT: Final = 1
ARTIFACT: Final = "artifact"
"""The kind of a complete payload."""
PARTITION: Final = "partition"
"""The kind of what a backend compiled from one partition."""
_UNKNOWN_KIND: Final = "other"
INDEX: Final = "index.json"
SEAL: Final = "index.sha256"
FILES: Final = "files"
# An entry's name: the digest of everything it was made from.
KEY: Final = re.compile(r"[0-9a-f]{64}")
# Errors that concern this process or its permissions, not the entry.
_NOT_DAMAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
_SHARD = re.compile(r"[0-9a-f]{2}")


class BuildCache:
    """A user's build cache in `folder`, or in `default_folder()`.

    Its entries together take at most `limit_bytes` (default: `default_limit()`) bytes.
    `problem` is why it could not be used, the first time that happened; `dropped` is the number of
    damaged entries that were removed.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self.problem: AotcError | None = None
        self.dropped = 0
        self.folder: Path | None = None
        self.limit_bytes = DEFAULT_LIMIT
        self._drops: list[Finding] = []
        self._kinds: dict[str, str] = {}
        self._guard = threading.Lock()
        try:
            self.limit_bytes = default_limit() if limit_bytes is None else limit_bytes
            self.folder = default_folder() if folder is None else Path(folder).absolute()
        except AotcError as error:
            self.problem = error

    def key(self, kind: str, parts: Mapping[str, Json]) -> str:
        """The key of what is made from `parts`, all that it depends on: a SHA-256 in hex.

        Raises ValueError for parts that canonical JSON (RFC 8785) cannot hold.
        """
        key = canonical_sha256({"kind": kind, "format": FORMAT, "parts": dict(parts)})
        with self._guard:
            self._kinds[key] = kind
        return key

    def get(self, key: str, into: Path) -> Json | None:
        """Copy the verified files of an entry into the folder `into`; the entry's document.

        None if there is no entry, if it was damaged and is now removed, or if the cache cannot be
        used; then `into` is unchanged.  No file in `into` is ever replaced.  Numbers in the
        document are as canonical JSON holds them: 1.0 becomes 1.
        """
        shard = _shard(key)
        try:
            root = self._root()
            return self._take(root, root / shard / key, Path(into)) if root is not None else None
        except AotcError as error:
            self._note_problem(error)
            return None

    def put(
        self,
        key: str,
        folder: Path,
        files: Sequence[str],
        document: Json,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """Keep copies of `files`, paths relative to `folder`, and a document other than None.

        `digests` are SHA-256 (hex) by path, of files that need not be hashed again.  If the key
        already has an entry, that one stays.  The entry's kind is the one given to `key`.
        If the cache cannot be used, `problem` says why.  Raises only ValueError, for a path or a
        document that no entry can hold.
        """
        try:
            sizes = {path: os.lstat(folder / path).st_size for path in files}
        except OSError as error:
            self._note_problem(unusable(error, Path(folder)))
            return
        index = draft_index(key, self._kinds.get(key, _UNKNOWN_KIND), document, sizes)
        try:
            root = self._make_root()
            entry = root / _shard(key) / key
            if entry.is_dir():
                touch(entry)
                return
            self._refuse_larger(entry, sum(sizes.values()))
            with draft(root) as drafted:
                write_entry(drafted, index, Path(folder), digests or {})
                _publish(drafted, entry)
            prune(root, self.limit_bytes, keep=key)
        except AotcError as error:
            self._note_problem(error)
        except OSError as error:
            self._note_problem(unusable(error, self.folder or Path()))

    def entries(self) -> list[CacheEntry]:
        """All entries, the most recently used first; raises R014 if the cache is unusable."""
        root = self._root()
        return list(shown_entries(root)) if root is not None else []

    def prune(self, limit_bytes: int | None = None) -> PruneReport:
        """Remove the entries used longest ago until at most `limit_bytes` remain.

        The default limit is the cache's own.  Half-written folders of ended builds are removed
        too.  Raises R014.
        """
        root = self._root()
        if root is None:
            return PruneReport(folder=str(self.folder))
        return prune(root, self.limit_bytes if limit_bytes is None else limit_bytes)

    def clear(self) -> PruneReport:
        """Remove all entries, and all half-written folders that nobody holds; raises R014."""
        root = self._root()
        if root is None:
            return PruneReport(folder=str(self.folder))
        return prune(root, 0, stale_seconds=0)

    def findings(self) -> tuple[Finding, ...]:
        """Findings for a build's report: R015 for each removed entry, R014 for `problem`."""
        with self._guard:
            found = tuple(self._drops)
            if self.problem is not None:
                what = self.problem.what
                if self.problem.found:
                    what += f": {self.problem.found}"
                found += (Finding(code=self.problem.code, what=what, where=self.problem.where),)
        return found

    def _take(self, root: Path, entry: Path, into: Path) -> Json | None:
        try:
            found = entry.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(error, entry) from None
        try:
            _require_own(entry)
            index = read_index(entry, entry.name)
            touch(entry)
            copy_files(entry, index, into)
        except Damaged as damage:
            self._drop(root, entry, found, damage)
            return None
        return index.document

    def _drop(self, root: Path, entry: Path, seen: os.stat_result, damage: Damaged) -> None:
        """Remove a damaged entry, unless another process removed or replaced it meanwhile."""
        try:
            now = entry.lstat()
            if (now.st_dev, now.st_ino) != (seen.st_dev, seen.st_ino):
                return
            if not remove_entry(entry, root):
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise unusable(error, entry) from None
        with self._guard:
            self.dropped += 1
            self._drops.append(Finding(code="AOTC-R015", what=str(damage), where=str(entry)))

    def _refuse_larger(self, entry: Path, size: int) -> None:
        if size > self.limit_bytes:
            raise AotcError(
                "AOTC-R014",
                "the build is larger than the limit of the cache",
                where=str(entry),
                expected=f"at most {self.limit_bytes} bytes",
                found=f"{size} bytes",
                fix="Set AOTC_CACHE_BYTES to more, or build with --no-cache.",
            )

    def _root(self) -> Path | None:
        """The folder of this format; None if there is none, R014 if it is unusable."""
        if self.folder is None:
            raise self.problem or AotcError("AOTC-R014", "there is no folder for the cache")
        root = self.folder / f"v{FORMAT}"
        return root if is_usable(self.folder) and is_usable(root) else None

    def _make_root(self) -> Path:
        if self.folder is not None:
            is_usable(self.folder, make=True)
            is_usable(self.folder / f"v{FORMAT}", make=True)
        root = self._root()
        if root is None:
            raise AotcError(
                "AOTC-R014", "the cache was removed during the build", where=str(self.folder)
            )
        return root

    def _note_problem(self, error: AotcError) -> None:
        with self._guard:
            self.problem = self.problem or error


def _shard(key: str) -> str:
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a key")
    return key[:2]


def _require_own(entry: Path) -> None:
    """Raise `Damaged` for an entry that another user could have written."""
    try:
        own = is_own(entry)
    except OSError:
        return  # Reading it says what is wrong.
    if not own:
        raise Damaged("others than this user may change it")


def _publish(draft: Path, entry: Path) -> None:
    """Rename a draft to its entry; if another writer was faster, that entry stays."""
    entry.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        draft.rename(entry)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise


# One entry of the build cache: a folder whose files match its index; otherwise it is damaged.
#
#     <entry>/index.json      what it contains (`CacheIndex`), as canonical JSON; mtime: creation
#     <entry>/index.sha256    digest of index.json; mtime: the last use
#     <entry>/files/          the files, and nothing else
#
# The digest of the index detects damage only; the folder's permissions protect it from other users.


class Damaged(Exception):
    """An entry does not match its index, or has none."""


def read_index(entry: Path, key: str) -> CacheIndex:
    """The index of an entry; raises `Damaged`, or R014 if it cannot be read."""
    try:
        if {child.name for child in entry.iterdir()} != {INDEX, SEAL, FILES}:
            raise Damaged("files are missing or added next to the index")
        data = _read(entry / INDEX)
        if hashlib.sha256(data).hexdigest().encode() != _read(entry / SEAL):
            raise Damaged("the index has another digest")
        index = decode(CacheIndex, strict_json(data))
    except ParseError as error:
        raise Damaged(f"the index: {error}") from None
    except OSError as error:
        raise _damage_or_refusal(error, entry) from None
    if index.key != key:
        raise Damaged(f"the index belongs to {index.key}")
    return index


def touch(entry: Path) -> None:
    """Record that the entry is used now; a read-only cache stays unchanged."""
    now = time.time_ns()
    try:
        os.utime(entry / SEAL, ns=(now, now))
    except OSError:
        return


def copy_files(entry: Path, index: CacheIndex, into: Path) -> None:
    """Copy the files of an entry into a folder, and verify the copies.

    Raises `Damaged`, or R014 if a copy cannot be made; then `into` is unchanged.
    """
    made: list[Path] = []
    try:
        wanted = {file.path: file.size for file in index.files}
        if dict(_files_below(entry / FILES)) != wanted:
            raise Damaged("files are missing, added or of another size")
        copies = [
            Copy(entry / FILES / file.path, into / file.path, file.size) for file in index.files
        ]
        for file, chunks in zip(index.files, copy_all(copies, made), strict=True):
            if chunks != file.chunks:
                raise Damaged(f"{file.path} has another digest")
    except OSError as error:
        _undo(made)
        raise _damage_or_refusal(error, entry) from None
    except BaseException:
        _undo(made)
        raise


def draft_index(key: str, kind: str, document: Json, sizes: Mapping[str, int]) -> CacheIndex:
    """The index of a future entry, without digests; raises ValueError for what no entry can hold.

    What is written must be readable, so keys, kinds, paths and the document are checked in the
    same way as when they are read.
    """
    if document is None:
        raise ValueError("no document: None means that there is no entry")
    unknown = "0" * 64
    index = CacheIndex(
        key=key,
        kind=kind,
        document=document,
        files=tuple(
            CachedFile(path=path, size=size, chunks=(unknown,) * chunk_count(size))
            for path, size in sizes.items()
        ),
    )
    return decode(CacheIndex, strict_json(canonical_json(encode(index, full=True))))


def write_entry(entry: Path, index: CacheIndex, folder: Path, digests: Mapping[str, str]) -> None:
    """Write an entry: copies of the index's files from `folder`, and the index with digests.

    Raises R014 if a file cannot be read or written.
    """
    files = entry / FILES
    copies = [
        Copy(folder / file.path, files / file.path, file.size, digests.get(file.path, ""))
        for file in index.files
    ]
    try:
        files.mkdir(mode=0o700)
        hashed = copy_all(copies, [])
        stored = tuple(
            replace(file, chunks=chunks) for file, chunks in zip(index.files, hashed, strict=True)
        )
        data = canonical_json(encode(replace(index, files=stored), full=True))
        (entry / INDEX).write_bytes(data)
        (entry / SEAL).write_bytes(hashlib.sha256(data).hexdigest().encode())
        touch(entry)  # More precise than the file system's own clock.
    except OSError as error:
        raise unusable(error, entry) from None


def _files_below(folder: Path, above: str = "") -> Iterator[tuple[str, int]]:
    """Paths and sizes of all files; raises `Damaged` for anything but files and folders."""
    with os.scandir(folder) as found:
        for child in found:
            path = f"{above}{child.name}"
            if child.is_dir(follow_symlinks=False):
                yield from _files_below(folder / child.name, f"{path}/")
            elif child.is_file(follow_symlinks=False):
                yield path, child.stat(follow_symlinks=False).st_size
            else:
                raise Damaged(f"{path} is not a regular file")


def _read(path: Path) -> bytes:
    descriptor, size = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(min(size, MAX_JSON_BYTES) + 1)


def _damage_or_refusal(error: OSError, entry: Path) -> Exception:
    """`Damaged`, or the refusal R014 if a failed read does not say that the entry is damaged."""
    if error.errno in _NOT_DAMAGE:
        return unusable(error, entry)
    name = Path(error.filename).name if error.filename else "a file"
    return Damaged(f"{name}: {error.strerror}")


def _undo(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):  # A folder may contain something else by now.
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()


# Listing the build cache, and removing entries when it is too large.


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
        created_at=_utc_text(entry.created),
        used_at=_utc_text(entry.used),
        files=files,
        title=title,
    )


def _utc_text(seconds: float) -> str:
    found = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return found.isoformat(timespec="seconds")
