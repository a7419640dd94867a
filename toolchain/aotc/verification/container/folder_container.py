"""Reading an artifact without following anything that leads out of it.

`open_container` takes what is at a path: a folder, or a packed artifact, which has the same
methods and is checked by `verification.container.archive`.  Of a folder:

Where the system allows, every step from the root is an `openat` with O_NOFOLLOW on a descriptor
that is held, so that a folder that is swapped while it is read cannot redirect a read.  Each
file must be a plain one with a single link.  Elsewhere (Windows) paths are checked before and
after opening.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from aotc.contract.artifact_words import id_in
from aotc.contract.codec.parsing import MAX_JSON_BYTES
from aotc.errors import AotcError
from aotc.files.failures import cannot_read, said, told

MANIFEST = "payload/aotc.json"
MAX_ENTRIES = 10_000
MAX_DEPTH = 8

# The name by which a load takes an artifact from a store.
_STORED = re.compile(r"sha256-([0-9a-fA-F]*)")
_ID_DIGITS = 64

_BY_DESCRIPTOR = (
    os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
)
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# O_NONBLOCK: opening a FIFO must not wait for a writer; plain files ignore it.
READ_FILE = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ_FOLDER = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)


@dataclass(frozen=True, slots=True)
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


class PlainFile(FileIO):
    """A file of a folder."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        self.size = os.fstat(descriptor).st_size
        self.crc32: int | None = None


class Container:
    """An artifact's folder, held open.  The root itself may be reached through a link."""

    def __init__(self, root: Path) -> None:
        """Raises I001 where there is nothing to read, G015 where it is no folder."""
        self.root = root
        self._descriptor: int | None = None
        if id_in(root) is not None:
            raise AotcError(
                "AOTC-I001",
                "an artifact of a store cannot be taken here by its id",
                where=str(root),
                expected="a folder",
                mend=f"A folder of this name is ./{root}",
            )
        try:
            if not stat.S_ISDIR(root.stat().st_mode):
                raise AotcError(
                    "AOTC-G015",
                    "the path is not a folder",
                    where=str(root),
                    mend="Give the artifact's folder; 'aotc unpack' makes it of a packed one.",
                )
            if _BY_DESCRIPTOR:
                self._descriptor = os.open(root, _READ | os.O_DIRECTORY)
        except OSError as error:
            raise _unreachable(error, root) from None

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
        """Release the folder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def listing(self, folder: str = "") -> Listing:
        """Everything below `folder`; links, special files and excesses are its problems."""
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
                    problems.append(_excess(f"more than {MAX_ENTRIES} files and folders", ""))
                    return Listing(files, frozenset(folders), tuple(problems))
                if status is None:
                    problems.append(_unlistable(path))
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.add(path)
                    if path.count("/") >= MAX_DEPTH:
                        problems.append(_excess(f"folders deeper than {MAX_DEPTH}", path))
                    else:
                        pending.append(path)
                    continue
                problem = plainness(status, path)
                if problem is not None:
                    problems.append(problem)
                else:
                    files[path] = status.st_size
        problems.sort(key=lambda problem: problem.where)
        return Listing(dict(sorted(files.items())), frozenset(folders), tuple(problems))

    def open(self, path: str) -> ArtifactFile:
        """A plain file.

        Raises G006 where it is missing, G008 where it or a folder on the way is a link or
        something special, I001 where it cannot be read.
        """
        try:
            file = PlainFile(self._open(path, READ_FILE))
        except OSError as error:
            raise _unreadable(error, path) from None
        problem = plainness(os.fstat(file.fileno()), path)
        if problem is not None:
            file.close()
            raise problem
        return file

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

    def _entries(
        self, folder: str, problems: list[AotcError]
    ) -> Iterator[tuple[str, os.stat_result | None]]:
        """Names in a folder; None for one that no signature can list."""
        try:
            source = self._open(folder, _READ_FOLDER) if _BY_DESCRIPTOR else self._checked(folder)
        except OSError as error:
            problems.append(_unreadable(error, folder))
            return
        try:
            with os.scandir(source) as entries:
                for entry in entries:
                    status = None
                    if _usable(entry.name):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # Gone since it was listed: it might have been before.
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

    def _checked(self, path: str) -> Path:
        """The path, once no part of it below the root is found to be a link."""
        place = self.root
        for part in path.split("/") if path else ():
            place = place / part
            if stat.S_ISLNK(place.lstat().st_mode):
                raise OSError(errno.ELOOP, "is a link")
        return place

    def _open_checked(self, path: str, flags: int) -> int:
        place = self._checked(path)
        before = place.lstat()
        descriptor = os.open(place, flags)
        after = os.fstat(descriptor)
        if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
            os.close(descriptor)
            raise OSError(errno.ELOOP, "changed while it was opened")
        return descriptor


def open_container(path: Path) -> Container:
    """The artifact at a path: a folder, or a packed one; or of an id (see `artifact_words`).

    Raises I001 where there is nothing to read, G015 where it is neither; of what is packed also
    G008, G012 and G039; I027 for what is no path; of an id what `open_entry` does.
    """
    asked = id_in(path)
    if asked is not None:
        return open_entry(asked)
    try:
        is_file = path.is_file()
    except OSError:
        is_file = False
    with told(str(path)):
        if is_file:
            from aotc.verification.container.archive_container import ArchiveContainer

            return ArchiveContainer(path)
        return Container(path)


def open_entry(artifact_id: str) -> Container:
    """The entry of this id in the system-wide store, or in this user's.

    Raises I001 where neither has it, R006 where it holds another artifact, R016 for a store that
    others may change.
    """
    from aotc.verification.stores import entry_of

    container = Container(entry_of(artifact_id))
    try:
        found = hashlib.sha256(container.read(MANIFEST, MAX_JSON_BYTES)).hexdigest()
        if found != artifact_id:
            raise other_artifact(container.root, artifact_id, found)
    except BaseException:
        container.close()
        raise
    return container


def other_artifact(entry: Path, asked: str, found: str) -> AotcError:
    """R006 for an entry that holds another artifact than the one that was asked for."""
    return AotcError(
        "AOTC-R006",
        "the entry of the store holds another artifact than its name says",
        where=str(entry),
        expected=asked,
        found=found,
    )


def _unreachable(error: OSError, root: Path) -> AotcError:
    what = "cannot read the artifact"
    name = _STORED.fullmatch(str(root))
    if name is None or error.errno != errno.ENOENT:
        return cannot_read(error, what, str(root))
    return AotcError(
        "AOTC-I001",
        f"{what}: {said(error)}",
        where=str(root),
        expected=f"sha256- and all {_ID_DIGITS} digits of an id, to load an entry of a store",
        found=f"{len(name[1])} digits",
        mend="'aotc store list --json' tells the ids of a store's entries.",
    )


def _usable(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\\" not in name and all(character >= " " for character in name)


def plainness(status: os.stat_result, path: str) -> AotcError | None:
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


def _unreadable(error: OSError, path: str) -> AotcError:
    if error.errno == errno.ENOENT:
        return AotcError("AOTC-G006", "a file of the artifact is missing", where=path)
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO):
        return AotcError(
            "AOTC-G008",
            "the artifact holds something that is no plain file of its own",
            where=path,
            expected="a plain file with one link",
            found="a link or special file",
        )
    return cannot_read(error, "a file of the artifact cannot be read", path)


def _unlistable(path: str) -> AotcError:
    return AotcError("AOTC-G007", "a name is one that no signature can list", where=repr(path))


def _excess(found: str, path: str) -> AotcError:
    return AotcError("AOTC-G012", "the artifact exceeds the limits", where=path, found=found)
