"""The files of an artifact as they are read: the interface, and the folder that holds them."""

from __future__ import annotations

import errno
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read, system_message
from aotc.base.records import record
from aotc.spec.payload import Finding
from aotc.spec.versions import stated_id, stated_reference

MAX_ENTRIES = 10_000
MAX_DEPTH = 8
MAX_BUNDLES = 64
# For all bundles together, which are read before any signature is checked.
MAX_BUNDLES_BYTES = 64 << 20

READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
READ_FILE = READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

# The name of an entry of a store, also with a wrong number of digits.
_STORED = r"sha256-([0-9a-fA-F]*)"
_ID_DIGITS = 64

_BY_DESCRIPTOR = (
    os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
)
_READ_FOLDER = READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)

# The limit for an artifact that is replaced all the time.
_MAX_READS: Final = 10

T = TypeVar("T")


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
    origin: str = ""
    """HOST/REPOSITORY@DIGEST of an artifact in a registry, where reading is slow; else empty."""
    findings: tuple[Finding, ...] = ()
    """What is to be told of how it was opened, such as what a tag was resolved to."""
    _descriptor: int | None

    @property
    def place(self) -> str:
        """Where it is, as messages say it."""
        return str(self.root)

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
    return _not_regular(path, found)


def _not_regular(path: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-G008",
        "the artifact has something that is not a regular file with one link",
        where=path,
        expected="a regular file with one link",
        found=found,
    )


# An artifact's folder, read without following links out of it.
#
# If the system supports it, every path is opened from the root part by part, with `openat` and
# O_NOFOLLOW, so that a folder that is replaced while it is read cannot redirect a read. On other
# systems (Windows), paths are checked before and after they are opened. Each file must be a regular
# file with one link.


class RegularFile(FileIO):
    """A regular file of a folder."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        self.size = os.fstat(descriptor).st_size
        self.crc32: int | None = None


class FolderContainer(Container):
    """An artifact's folder, held open.  The path of the root itself may have links."""

    def __init__(self, root: Path) -> None:
        """Raises AOTC-I001 if it cannot be read, and G015 if it is not a folder."""
        self.root = root
        self._descriptor: int | None = None
        if stated_id(root) is not None:
            raise AotcError(
                "AOTC-I001",
                "an id of a store's entry cannot be used here",
                where=str(root),
                expected="a folder",
                fix=f"A folder of this name is ./{root}",
            )
        if (reference := stated_reference(root)) is not None:
            raise AotcError(
                "AOTC-I001",
                "a reference to a registry cannot be used here",
                where=reference,
                expected="a folder",
                fix=f"aotc pull {reference} -o NAME.aotc",
            )
        try:
            if not stat.S_ISDIR(root.stat().st_mode):
                raise AotcError(
                    "AOTC-G015",
                    "the path is not a folder",
                    where=str(root),
                    fix="Give the artifact's folder; 'aotc unpack' makes one of a packed artifact.",
                )
            if _BY_DESCRIPTOR:
                self._descriptor = os.open(root, READ | os.O_DIRECTORY)
        except OSError as error:
            raise _unreachable(error, root) from None

    def listing(self, folder: str = "") -> Listing:
        """The content of `folder`; links, special files and exceeded limits are its problems."""
        files: dict[str, int] = {}
        folders: set[str] = set()
        problems: list[AotcError] = []
        pending = [folder]
        seen = 0
        while pending:
            place = pending.pop()
            for name, status in self._entries(place, problems):
                path = f"{place}/{name}" if place else name
                seen += 1
                if seen > MAX_ENTRIES:
                    problems.append(
                        _limit_exceeded(f"more than {MAX_ENTRIES} files and folders", "")
                    )
                    return Listing(files, frozenset(folders), tuple(problems))
                if status is None:
                    what = "no signature can list this name"
                    problems.append(AotcError("AOTC-G007", what, where=repr(path)))
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.add(path)
                    if path.count("/") >= MAX_DEPTH:
                        problems.append(_limit_exceeded(f"folders deeper than {MAX_DEPTH}", path))
                    else:
                        pending.append(path)
                    continue
                problem = special_file_refusal(status, path)
                if problem is not None:
                    problems.append(problem)
                else:
                    files[path] = status.st_size
        problems.sort(key=lambda problem: problem.where)
        return Listing(dict(sorted(files.items())), frozenset(folders), tuple(problems))

    def open(self, path: str) -> ArtifactFile:
        """Open a regular file.

        Raises AOTC-G006 if it does not exist, G008 if it or a folder on its path is a link or
        special file, and I001 if it cannot be read.
        """
        try:
            file = RegularFile(self._open(path, READ_FILE))
        except OSError as error:
            raise _unreadable(error, path) from None
        problem = special_file_refusal(os.fstat(file.fileno()), path)
        if problem is not None:
            file.close()
            raise problem
        return file

    def _entries(
        self, folder: str, problems: list[AotcError]
    ) -> Iterator[tuple[str, os.stat_result | None]]:
        """Names in a folder with their status; None for a name that no signature can list."""
        try:
            source = (
                self._open(folder, _READ_FOLDER) if _BY_DESCRIPTOR else self._checked_path(folder)
            )
        except OSError as error:
            problems.append(_unreadable(error, folder))
            return
        try:
            with os.scandir(source) as entries:
                for entry in entries:
                    status = None
                    if _is_listable(entry.name):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # It was removed since the folder was listed.
                    yield entry.name, status
        except OSError as error:
            problems.append(_unreadable(error, folder))
        finally:
            if isinstance(source, int):
                os.close(source)

    def _open(self, path: str, flags: int) -> int:
        if self._descriptor is None:
            return self._open_checked(path, flags)
        parts = path.split("/") if path else ["."]
        at = self._descriptor
        try:
            for part in parts[:-1]:
                below = os.open(part, _READ_FOLDER, dir_fd=at)
                if at != self._descriptor:
                    os.close(at)
                at = below
            return os.open(parts[-1], flags, dir_fd=at)
        finally:
            if at != self._descriptor:
                os.close(at)

    def _checked_path(self, path: str) -> Path:
        """The path below the root; raises OSError if a part of it is a link."""
        place = self.root
        for part in path.split("/") if path else ():
            place = place / part
            if stat.S_ISLNK(place.lstat().st_mode):
                raise OSError(errno.ELOOP, "is a link")
        return place

    def _open_checked(self, path: str, flags: int) -> int:
        place = self._checked_path(path)
        before = place.lstat()
        descriptor = os.open(place, flags)
        after = os.fstat(descriptor)
        if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
            os.close(descriptor)
            raise OSError(errno.ELOOP, "changed while it was opened")
        return descriptor


def _unreachable(error: OSError, root: Path) -> AotcError:
    what = "cannot read the artifact"
    name = re.fullmatch(_STORED, str(root))
    if name is None or error.errno != errno.ENOENT:
        return cannot_read(error, what, str(root))
    return AotcError(
        "AOTC-I001",
        f"{what}: {system_message(error)}",
        where=str(root),
        expected=f"sha256- and all {_ID_DIGITS} digits of an id, for an entry of a store",
        found=f"{len(name[1])} digits",
        fix="'aotc store list --json' shows the ids of a store's entries.",
    )


def _is_listable(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\\" not in name and all(character >= " " for character in name)


def _unreadable(error: OSError, path: str) -> AotcError:
    if error.errno == errno.ENOENT:
        return AotcError("AOTC-G006", "a file of the artifact is missing", where=path)
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO):
        return _not_regular(path, "a link or special file")
    return cannot_read(error, "a file of the artifact cannot be read", path)


def _limit_exceeded(found: str, path: str) -> AotcError:
    return AotcError("AOTC-G012", "the artifact exceeds the limits", where=path, found=found)


# Reading an artifact that another command replaces meanwhile (`--force`).
#
# Its path always leads to the old or the new folder, but the files of an open old folder are
# removed. So a read that fails is repeated from the start if the path leads to another folder
# afterwards.


def reread(place: Path, read: Callable[[], T], *, holds: Callable[[T], bool] = lambda _: True) -> T:
    """The result of `read` for the artifact at `place`, if that was not replaced meanwhile.

    `read` is repeated if it raises an AotcError, or `holds` is false for its result, and the
    artifact was replaced.  Raises what the last read does.
    """
    for _ in range(_MAX_READS - 1):
        before = _identity(place)
        try:
            found = read()
        except AotcError:
            if _identity(place) == before:
                raise
            continue
        if holds(found) or _identity(place) == before:
            return found
    return read()


def _identity(place: Path) -> tuple[int, int, int] | None:
    """Identifies the folder at a path, with its time of change, as inodes are reused."""
    try:
        found = os.stat(place)  # noqa: PTH116 - opening it reports a name that no file can have
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
