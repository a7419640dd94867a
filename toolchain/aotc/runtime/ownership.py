"""Whether a folder is safe from everybody but its owner: told by held descriptors, never by paths.

The walk begins at `/` and goes down.  A folder that its owner alone may write keeps its names, so
that what was found below it stays what is there; each step is an `openat` without links, on the
folder that was just checked.  A folder that all may write is passed where it has the sticky bit
and what is opened in it is the owner's (inode(7)): nobody else can move that away.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from aotc.errors import AotcError

ROOT_USER: Final = 0
_OTHERS_WRITE: Final = 0o022
# O_PATH: folders on the way need not be readable, only searchable.
_ON_THE_WAY: Final = (
    getattr(os, "O_PATH", os.O_RDONLY)
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_FOLDER: Final = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETUID, CAP_SYS_ADMIN (capabilities(7)).
_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 3, 7, 21))
# File systems that show one owner for all, or what another machine says.
_OWNERLESS: Final = frozenset(
    {"9p", "cifs", "exfat", "fuse", "fuseblk", "hfs", "hfsplus", "msdos", "ntfs", "ntfs3"}
    | {"prl_fs", "smb3", "smbfs", "vboxsf", "vfat", "vmhgfs"}
)


def open_folder(path: Path, owner: int) -> int:
    """A descriptor of a folder that only `owner` and root may change, with all that leads to it.

    Raises R016 where somebody else may, and OSError where it cannot be opened.
    """
    place = Path(os.path.abspath(path))  # noqa: PTH100
    at = os.open(place.anchor, _ON_THE_WAY)
    try:
        shown = Path(place.anchor)
        parts = place.parts[1:]
        _require(os.fstat(at), shown, owner, sticky=bool(parts))
        for index, part in enumerate(parts):
            shown = shown / part
            last = index == len(parts) - 1
            below = _open_below(at, part, shown, _FOLDER if last else _ON_THE_WAY)
            os.close(at)
            at = below
            _require(os.fstat(at), shown, owner, sticky=not last)
        found, at = at, -1
        return found
    finally:
        if at >= 0:
            os.close(at)


def sizes_below(folder: int, shown: Path, owner: int) -> dict[str, int]:
    """Sizes in bytes of all files below an open folder, by path, once all of it is found safe.

    Raises R016 where somebody else than `owner` or root may change a file or folder of it, or
    where something is a link; and OSError.
    """
    sizes: dict[str, int] = {}
    _require(os.fstat(folder), shown, owner)
    _walk(folder, shown, "", owner, sizes)
    return sizes


def require_owners(folder: int, shown: Path) -> None:
    """Raises R016 where a folder's file system is known to keep no owners; best effort."""
    kind = _file_system(folder)
    if kind.partition(".")[0] in _OWNERLESS:
        raise _unsafe(
            "the store is on a file system that keeps no owners",
            shown,
            "a local file system such as ext4 or xfs",
            kind,
        )


def may_write(owner: int) -> bool:
    """Whether this process could change what only `owner` and root may write."""
    users = os.getresuid() if hasattr(os, "getresuid") else (os.getuid(), os.geteuid())
    return bool({ROOT_USER, owner} & set(users)) or bool(_effective() & _CAPABILITIES)


def is_shared(folder: int) -> bool:
    """Whether others than its owner may search an open folder, as that of a system-wide store."""
    return bool(os.fstat(folder).st_mode & 0o011)


def _open_below(at: int, name: str, shown: Path, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except OSError:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise _unsafe("a link leads to the store", shown, "a folder", "a link") from None
        raise


def _walk(folder: int, shown: Path, above: str, owner: int, sizes: dict[str, int]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{above}{entry.name}"
            if not entry.is_dir(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                _require(found, shown / path, owner)
                sizes[path] = found.st_size
                continue
            below = _open_below(folder, entry.name, shown / path, _FOLDER)
            try:
                _require(os.fstat(below), shown / path, owner)
                _walk(below, shown, f"{path}/", owner, sizes)
            finally:
                os.close(below)


def _require(found: os.stat_result, shown: Path, owner: int, *, sticky: bool = False) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _unsafe("the store holds a link", shown, "a file or folder", "a link")
    if found.st_uid not in (ROOT_USER, owner):
        users = "user 0" if owner == ROOT_USER else f"user 0 or {owner}"
        raise _unsafe(
            "somebody else owns what is on the way to the store, or in it",
            shown,
            users,
            f"user {found.st_uid}",
        )
    if found.st_mode & _OTHERS_WRITE and not (sticky and found.st_mode & stat.S_ISVTX):
        raise _unsafe(
            "others may write what is on the way to the store, or in it",
            shown,
            "nothing that group or others may write",
            f"mode {stat.S_IMODE(found.st_mode):04o}",
        )


def _unsafe(what: str, shown: Path, expected: str, found: str) -> AotcError:
    return AotcError("AOTC-R016", what, where=str(shown), expected=expected, found=found)


def _effective() -> int:
    """This process's effective capabilities as bits; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text("utf-8", "replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.partition(":")[2], 16)
    return 0


def _file_system(folder: int) -> str:
    """The kind of file system of an open folder; an empty string where the system does not tell.

    `mnt_id` of /proc/self/fdinfo leads to a row of /proc/self/mountinfo (proc_pid_mountinfo(5)).
    """
    try:
        about = Path(f"/proc/self/fdinfo/{folder}").read_text("utf-8", "replace")
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    number = next(
        (line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:")), ""
    )
    for line in mounts.splitlines():
        if line.partition(" ")[0] == number:
            return line.partition(" - ")[2].partition(" ")[0]
    return ""
