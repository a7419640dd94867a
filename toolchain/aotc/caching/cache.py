"""The build cache: folders of files by the digest of all that they were made from.

    <folder>/v1/<first two digits of the key>/<key>/    one entry: see `entry`
    <folder>/v1/.new-<owner>/                           being written; locked while its writer lives
    <folder>/v1/lock                                    held by whoever prunes

It is a convenience: a build goes on without it, and its report says why.  An entry is written
beside and renamed into place, and verified whenever it is taken: one that a crash, a disk or
another process damaged is dropped, and is never an answer.  Nothing is synced to disk.
Objects may be used from several threads, and folders by several processes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.caching import cache_folder as place
from aotc.caching import upkeep
from aotc.caching.entry import KEY, Damaged, fill, plan, read_index, take, touch
from aotc.contract.codec.canonical import canonical_sha256
from aotc.contract.codec.parsing import Json
from aotc.contract.finding import Finding
from aotc.contract.results.cache_reports import CacheEntry, PruneReport
from aotc.errors import AotcError

# Of keys and entries alike: another one finds nothing that this one wrote.
FORMAT: Final = 1
ARTIFACT: Final = "artifact"
"""The kind of a whole payload."""
PARTITION: Final = "partition"
"""The kind of what a backend made of one partition."""
_OTHER: Final = "other"


class BuildCache:
    """A user's cache of what was built: `folder`, or `default_folder()`.

    `limit_bytes` (`default_limit()`) is what its entries may take together.
    `problem` says why it could not be used, the first time that it could not; `dropped` counts
    damaged entries that were removed.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self.problem: AotcError | None = None
        self.dropped = 0
        self.folder: Path | None = None
        self.limit_bytes = place.DEFAULT_LIMIT
        self._drops: list[Finding] = []
        self._kinds: dict[str, str] = {}
        self._guard = threading.Lock()
        try:
            self.limit_bytes = place.default_limit() if limit_bytes is None else limit_bytes
            self.folder = place.default_folder() if folder is None else Path(folder).absolute()
        except AotcError as error:
            self.problem = error

    def key(self, kind: str, parts: Mapping[str, Json]) -> str:
        """The name of what is made of `parts`, all that it depends on: a sha256 (hex).

        Raises ValueError for parts that canonical JSON (RFC 8785) cannot hold.
        """
        key = canonical_sha256({"kind": kind, "format": FORMAT, "parts": dict(parts)})
        with self._guard:
            self._kinds[key] = kind
        return key

    def get(self, key: str, into: Path) -> Json | None:
        """Copy the files of an entry into the folder `into`, verified; the entry's document.

        None where there is no entry, where it was damaged and is dropped now, or where the cache
        cannot be used; then `into` is as it was.  No file of `into` is ever replaced.  A document
        comes back as canonical JSON holds it: what was 1.0 is 1.
        """
        shard = _shard(key)
        try:
            root = self._root()
            return self._take(root, root / shard / key, Path(into)) if root is not None else None
        except AotcError as error:
            self._cannot(error)
            return None

    def put(
        self,
        key: str,
        folder: Path,
        files: Sequence[str],
        document: Json,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """Keep copies of `files`, paths relative to `folder`, and a document (not None).

        `digests` are sha256 (hex) by path, of files that need not be hashed again.  Where the key
        has an entry, that one stays.  Its kind is what this object's `key` was told.
        Where the cache cannot be used, `problem` says why, and nothing is raised but ValueError,
        for a path or a document that no entry can hold.
        """
        try:
            sizes = {path: os.lstat(folder / path).st_size for path in files}
        except OSError as error:
            self._cannot(place.unusable(error, Path(folder)))
            return
        index = plan(key, self._kinds.get(key, _OTHER), document, sizes)
        try:
            root = self._made_root()
            entry = root / _shard(key) / key
            if entry.is_dir():
                touch(entry)
                return
            self._refuse_larger(entry, sum(sizes.values()))
            with place.draft(root) as draft:
                fill(draft, index, Path(folder), digests or {})
                _publish(draft, entry)
            upkeep.prune(root, self.limit_bytes, keep=key)
        except AotcError as error:
            self._cannot(error)
        except OSError as error:
            self._cannot(place.unusable(error, self.folder or Path()))

    def entries(self) -> list[CacheEntry]:
        """What the cache holds, what was used last first; raises R014 where it is unusable."""
        root = self._root()
        return list(upkeep.listed(root)) if root is not None else []

    def prune(self, limit_bytes: int | None = None) -> PruneReport:
        """Remove what was used longest ago until at most `limit_bytes` (the cache's own) are left.

        What dead builds left half-written goes too.  Raises R014.
        """
        root = self._root()
        if root is None:
            return PruneReport(folder=str(self.folder))
        return upkeep.prune(root, self.limit_bytes if limit_bytes is None else limit_bytes)

    def clear(self) -> PruneReport:
        """Remove every entry, and everything half-written that nobody holds; raises R014."""
        root = self._root()
        if root is None:
            return PruneReport(folder=str(self.folder))
        return upkeep.prune(root, 0, stale_seconds=0)

    def findings(self) -> tuple[Finding, ...]:
        """What a build's report says of the cache: R015 for each dropped entry, R014 once."""
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
            raise place.unusable(error, entry) from None
        try:
            _require_own(entry)
            index = read_index(entry, entry.name)
            touch(entry)
            take(entry, index, into)
        except Damaged as damage:
            self._drop(root, entry, found, damage)
            return None
        return index.document

    def _drop(self, root: Path, entry: Path, seen: os.stat_result, damage: Damaged) -> None:
        """Remove a damaged entry; one that was pruned while it was read was never damaged."""
        try:
            now = entry.lstat()
            if (now.st_dev, now.st_ino) != (seen.st_dev, seen.st_ino):
                return
            if not place.remove(entry, root):
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise place.unusable(error, entry) from None
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
        """The folder of this format; None where there is none, R014 where it is unusable."""
        if self.folder is None:
            raise self.problem or AotcError("AOTC-R014", "there is no folder for a cache")
        root = self.folder / f"v{FORMAT}"
        return root if place.is_usable(self.folder) and place.is_usable(root) else None

    def _made_root(self) -> Path:
        if self.folder is not None:
            place.make(self.folder)
            place.make(self.folder / f"v{FORMAT}")
        root = self._root()
        if root is None:
            raise AotcError("AOTC-R014", "the cache was removed meanwhile", where=str(self.folder))
        return root

    def _cannot(self, error: AotcError) -> None:
        with self._guard:
            self.problem = self.problem or error


def _shard(key: str) -> str:
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key")
    return key[:2]


def _require_own(entry: Path) -> None:
    """Raises `Damaged` for what another user could have written."""
    try:
        own = place.is_own(entry)
    except OSError:
        return  # Whoever reads it says what it is.
    if not own:
        raise Damaged("others than this user may change it")


def _publish(draft: Path, entry: Path) -> None:
    """Rename into place; where another writer was faster, its entry stays."""
    entry.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        draft.rename(entry)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
