"""The build cache: folders of files, each named by the digest of everything it was made from.

    <folder>/v1/<first two digits of the key>/<key>/    one entry: see `entry`
    <folder>/v1/.new-<owner>/                           a draft; locked while its writer lives
    <folder>/v1/lock                                    held by a process that prunes

The cache is optional: a build continues without it, and its report says why.  An entry is written
as a draft, renamed, and verified each time it is used: one that a crash, a disk or another process
damaged is removed and never used.  Nothing is synced to disk.
Objects may be used from several threads, and folders by several processes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.caching import cache_folder, upkeep
from aotc.caching.entry import KEY, Damaged, copy_files, draft_index, read_index, touch, write_entry
from aotc.contract.codec.canonical import canonical_sha256
from aotc.contract.codec.parsing import Json
from aotc.contract.finding import Finding
from aotc.contract.results.cache_reports import CacheEntry, PruneReport
from aotc.errors import AotcError

# Part of every key and entry: another format finds nothing that this one wrote.
FORMAT: Final = 1
ARTIFACT: Final = "artifact"
"""The kind of a complete payload."""
PARTITION: Final = "partition"
"""The kind of what a backend compiled from one partition."""
_UNKNOWN_KIND: Final = "other"


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
        self.limit_bytes = cache_folder.DEFAULT_LIMIT
        self._drops: list[Finding] = []
        self._kinds: dict[str, str] = {}
        self._guard = threading.Lock()
        try:
            self.limit_bytes = cache_folder.default_limit() if limit_bytes is None else limit_bytes
            self.folder = (
                cache_folder.default_folder() if folder is None else Path(folder).absolute()
            )
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
            self._note_problem(cache_folder.unusable(error, Path(folder)))
            return
        index = draft_index(key, self._kinds.get(key, _UNKNOWN_KIND), document, sizes)
        try:
            root = self._make_root()
            entry = root / _shard(key) / key
            if entry.is_dir():
                touch(entry)
                return
            self._refuse_larger(entry, sum(sizes.values()))
            with cache_folder.draft(root) as draft:
                write_entry(draft, index, Path(folder), digests or {})
                _publish(draft, entry)
            upkeep.prune(root, self.limit_bytes, keep=key)
        except AotcError as error:
            self._note_problem(error)
        except OSError as error:
            self._note_problem(cache_folder.unusable(error, self.folder or Path()))

    def entries(self) -> list[CacheEntry]:
        """All entries, the most recently used first; raises R014 if the cache is unusable."""
        root = self._root()
        return list(upkeep.shown_entries(root)) if root is not None else []

    def prune(self, limit_bytes: int | None = None) -> PruneReport:
        """Remove the entries used longest ago until at most `limit_bytes` remain.

        The default limit is the cache's own.  Half-written folders of ended builds are removed
        too.  Raises R014.
        """
        root = self._root()
        if root is None:
            return PruneReport(folder=str(self.folder))
        return upkeep.prune(root, self.limit_bytes if limit_bytes is None else limit_bytes)

    def clear(self) -> PruneReport:
        """Remove all entries, and all half-written folders that nobody holds; raises R014."""
        root = self._root()
        if root is None:
            return PruneReport(folder=str(self.folder))
        return upkeep.prune(root, 0, stale_seconds=0)

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
            raise cache_folder.unusable(error, entry) from None
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
            if not cache_folder.remove_entry(entry, root):
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise cache_folder.unusable(error, entry) from None
        with self._guard:
            self.dropped += 1
            self._drops.append(Finding(code="AOTC-R015", what=str(damage), where=str(entry)))

    def _refuse_larger(self, entry: Path, size: int) -> None:
        if size > self.limit_bytes:
            raise AotcError(
                "AOTC-R014",
                "what was built is larger than the cache may be",
                where=str(entry),
                expected=f"at most {self.limit_bytes} bytes",
                found=f"{size} bytes",
                fix="Set AOTC_CACHE_BYTES to more, or build with --no-cache.",
            )

    def _root(self) -> Path | None:
        """The folder of this format; None if there is none, R014 if it is unusable."""
        if self.folder is None:
            raise self.problem or AotcError("AOTC-R014", "there is no folder for a cache")
        root = self.folder / f"v{FORMAT}"
        return (
            root if cache_folder.is_usable(self.folder) and cache_folder.is_usable(root) else None
        )

    def _make_root(self) -> Path:
        if self.folder is not None:
            cache_folder.make_for_user(self.folder)
            cache_folder.make_for_user(self.folder / f"v{FORMAT}")
        root = self._root()
        if root is None:
            raise AotcError("AOTC-R014", "the cache was removed meanwhile", where=str(self.folder))
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
        own = cache_folder.is_own(entry)
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
