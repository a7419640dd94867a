"""The interface of an artifact's files, in either form, and the limits of reading them."""

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
# For all bundles together, which are read before any signature is checked.
MAX_BUNDLES_BYTES = 64 << 20

READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
READ_FILE = READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@record(kw_only=False)
class Listing:
    """The content of a folder: sizes of files (bytes, by path), folders, and refusals."""

    files: Mapping[str, int]
    folders: frozenset[str]
    problems: tuple[AotcError, ...]

    def under(self, prefix: str) -> dict[str, int]:
        """The files below `prefix/`, with paths relative to it."""
        start = f"{prefix}/"
        return {
            path[len(start) :]: size for path, size in self.files.items() if path.startswith(start)
        }


class ArtifactFile(Protocol):
    """A file of an artifact, open for unbuffered reading."""

    size: int
    """The size in bytes when it was opened."""
    crc32: int | None
    """The CRC-32 that a packed artifact states, which proves nothing; None in a folder."""

    def fileno(self) -> int:
        """A descriptor of this file only; raises OSError if it has none."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position of the next read, in bytes."""

    def read(self, size: int = -1, /) -> bytes | None:
        """At most `size` bytes; no bytes at the end."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into `buffer`; returns the number of bytes, 0 at the end."""

    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Container(ABC):
    """An open artifact; a context manager that closes it."""

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
        """Close it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @abstractmethod
    def listing(self, folder: str = "") -> Listing:
        """The content of `folder`; links, special files and exceeded limits are its problems."""

    @abstractmethod
    def open(self, path: str) -> ArtifactFile:
        """Open a regular file; raises AOTC-G006 if it does not exist."""

    def read(self, path: str, limit: int) -> bytes:
        """The bytes of a small file; raises what `open` does, and AOTC-G012 beyond `limit`."""
        with self.open(path) as file:
            if file.size > limit:
                raise AotcError(
                    "AOTC-G012",
                    "the file exceeds the limit of its size",
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
    """AOTC-G008 if a file is not a regular file with one link; None if it is."""
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
        "the artifact has something that is not a regular file with one link",
        where=path,
        expected="a regular file with one link",
        found=found,
    )
