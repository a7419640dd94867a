"""An artifact's folder, read without following links out of it.

If the system supports it, every path is opened from the root part by part, with `openat` and
O_NOFOLLOW, so that a folder that is replaced while it is read cannot redirect a read.  On other
systems (Windows), paths are checked before and after they are opened.  Each file must be a regular
file with one link.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from aotc.contract.artifact_names import stated_id
from aotc.errors import AotcError
from aotc.files.failures import cannot_read, system_message
from aotc.verification.container.base import (
    MAX_DEPTH,
    MAX_ENTRIES,
    READ,
    READ_FILE,
    ArtifactFile,
    Container,
    Listing,
    special_file_refusal,
)

# The name of an entry of a store, also with a wrong number of digits.
_STORED = r"sha256-([0-9a-fA-F]*)"
_ID_DIGITS = 64

_BY_DESCRIPTOR = (
    os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
)
_READ_FOLDER = READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)


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
                    problems.append(_unlistable(path))
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
        return AotcError(
            "AOTC-G008",
            "the artifact has something that is not a regular file with one link",
            where=path,
            expected="a regular file with one link",
            found="a link or special file",
        )
    return cannot_read(error, "a file of the artifact cannot be read", path)


def _unlistable(path: str) -> AotcError:
    return AotcError("AOTC-G007", "no signature can list this name", where=repr(path))


def _limit_exceeded(found: str, path: str) -> AotcError:
    return AotcError("AOTC-G012", "the artifact exceeds the limits", where=path, found=found)
