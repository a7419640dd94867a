"""Records of the build cache: the index of an entry, and what `aotc cache` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Json, Pattern, Problem
from aotc.contract.manifest.payload_files import CHUNK_BYTES, PayloadPath, Sha256
from aotc.records import record

Kind = Annotated[str, Pattern(r"[a-z][a-z0-9-]{0,31}")]


@record
class CachedFile:
    """A file of an entry; if it has one chunk, the chunk's digest is the file's."""

    path: PayloadPath
    size: Annotated[int, Bounds(0)]
    chunks: Annotated[tuple[Sha256, ...], "sha256 of each 16 MiB; the last chunk may be shorter"]

    def problems(self) -> Iterator[Problem]:
        """Rules that the types do not express: the digests cover the file."""
        if len(self.chunks) != chunk_count(self.size):
            yield Problem("chunks", f"{len(self.chunks)} digests for {self.size} bytes")


@record
class CacheIndex:
    """The content of an entry of the build cache: its `index.json`, as canonical JSON."""

    schema: Literal["aotc.cache-index/1"] = "aotc.cache-index/1"
    key: Sha256
    kind: Kind
    document: Json
    files: tuple[CachedFile, ...]

    def problems(self) -> Iterator[Problem]:
        """Rules that the types do not express: each path is listed once."""
        if len({file.path for file in self.files}) != len(self.files):
            yield Problem("files", "a path is listed twice")


def chunk_count(size: int) -> int:
    """The number of chunks with a digest in a file of `size` bytes; at least 1."""
    return max(1, -(-size // CHUNK_BYTES))


@record
class CacheEntry:
    """One entry of the build cache."""

    key: str
    kind: Annotated[str, "damaged: its index cannot be read"]
    bytes: Annotated[int, "on disk, its index included"]
    created: Annotated[str, "UTC, ISO 8601"]
    used: Annotated[str, "when it was stored or last used; UTC, ISO 8601"]
    files: int
    title: Annotated[str, "what it was made for, if known"] = ""


@record
class CacheListReport:
    """`aotc cache list --json`: the entry that was used last comes first."""

    schema: Literal["aotc.cache-list/1"] = "aotc.cache-list/1"
    folder: str
    limit_bytes: int
    bytes: int
    entries: tuple[CacheEntry, ...]


@record
class PruneReport:
    """`aotc cache prune --json`, `aotc cache clear --json`: what was removed and what remains."""

    schema: Literal["aotc.cache-prune/1"] = "aotc.cache-prune/1"
    folder: str
    removed: Annotated[int, "entries"] = 0
    removed_bytes: int = 0
    leftovers: Annotated[int, "incomplete folders of builds that were killed"] = 0
    kept: Annotated[int, "entries"] = 0
    kept_bytes: int = 0
