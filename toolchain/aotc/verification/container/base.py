"""What an artifact is to its readers, whichever form it has: files by path, and their limits."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from aotc.errors import AotcError
from aotc.records import record

MAX_ENTRIES = 10_000
MAX_DEPTH = 8
MAX_BUNDLES = 64
# Of all bundles together: they are read before anybody vouches for them.
MAX_BUNDLES_BYTES = 64 << 20

READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# O_NONBLOCK: opening a FIFO must not wait for a writer; plain files ignore it.
READ_FILE = READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@record(kw_only=False)
class Listing:
    """What a folder holds: sizes in bytes by path, folders, and what is refused in it."""

    files: Mapping[str, int]
    folders: frozenset[str]
    problems: tuple[AotcError, ...]

    def under(self, prefix: str) -> dict[str, int]:
        """Files below `prefix/`, with paths relative to it."""
        start = f"{prefix}/"
        return {
            path[len(start) :]: size for path, size in self.files.items() if path.startswith(start)
        }


class ArtifactFile(Protocol):
    """One file of an artifact, open for reading, unbuffered."""

    size: int
    """In bytes, when it was opened."""
    crc32: int | None
    """What a packed artifact states; nothing may be believed because of it."""

    def fileno(self) -> int:
        """A descriptor of this file alone; raises OSError where it has none."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Where the next read begins."""

    def read(self, size: int = -1, /) -> bytes | None:
        """At most `size` bytes; none at the end."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill `buffer` as far as a read gives; 0 at the end."""

    def close(self) -> None:
        """Release it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Container(ABC):
    """An artifact, held open; use with `with`."""

    root: Path
    _descriptor: int | None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @abstractmethod
    def listing(self, folder: str = "") -> Listing:
        """Everything below `folder`; links, special files and excesses are its problems."""

    @abstractmethod
    def open(self, path: str) -> ArtifactFile:
        """A plain file; raises G006 where it is missing."""

    def read(self, path: str, limit: int) -> bytes:
        """A small file's bytes, read once; raises what `open` does, and G012 beyond `limit`."""
        with self.open(path) as file:
            if file.size > limit:
                raise AotcError(
                    "AOTC-G012",
                    "the file is larger than is read",
                    where=path,
                    expected=f"at most {limit} bytes",
                    found=f"{file.size} bytes",
                )
            parts = bytearray()
            while len(parts) <= limit:
                part = file.read(1 << 20)
                if not part:
                    break
                parts += part
            return bytes(parts[:limit])


def special_file_refusal(status: os.stat_result, path: str) -> AotcError | None:
    """G008 for what is no plain file with a single link."""
    if stat.S_ISREG(status.st_mode):
        # Windows reports no link count without opening the file.
        if status.st_nlink <= 1:
            return None
        found = f"a file with {status.st_nlink} hard links"
    elif stat.S_ISLNK(status.st_mode):
        found = "a symbolic link"
    else:
        found = "a folder or special file"
    return AotcError(
        "AOTC-G008",
        "the artifact holds something that is no plain file of its own",
        where=path,
        expected="a plain file with one link",
        found=found,
    )
