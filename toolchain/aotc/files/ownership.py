"""Whether a folder is safe from everybody but its owners: told by held descriptors, not by paths.

The walk begins at `/` and goes down, by an `openat` without links on the folder that was just
checked.  Each folder belongs to root or to an owner, and nobody else may write it: so it keeps its
names, and a path that was walked leads to the same folder for as long as that holds.

  - A folder that all may write is passed where it has the sticky bit and what is taken in it is an
    owner's (inode(7)): nobody else can move that away.  What the walk leads to is never such a one.
  - A link is followed, step by step, where it is root's or an owner's and lies in such a folder:
    who could change it could change the folder as well.
  - Where homes are `drwxrwxr-x ann ann`, as a umask of 002 makes them, the group is one person's:
    the group may write what leads to the place and is the caller's, if it is their primary one, has
    their name, and nobody else is known to be in it.  The place itself it may not.
  - In a user namespace that has no name for a folder's owner (a rootless container), the owner is
    somebody outside, such as root of the host, who gave it to the container: such a folder may lead
    to the place, as long as nobody else may write it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.folders import FOLDER, make_below

ROOT_USER: Final = 0
_OTHERS_WRITE: Final = 0o022
_MAX_LINKS: Final = 40
# O_PATH: folders on the way need not be readable, only searchable.
_ON_THE_WAY: Final = getattr(os, "O_PATH", 0) | FOLDER


class Unsafe(Exception):
    """Somebody else may change what is at a path.

    `place` is the folder or file that lets them.  `fix` follows "Look at what is in this one,
    then".
    """

    def __init__(self, what: str, place: Path, *, expected: str, found: str, fix: str) -> None:
        self.what = what
        self.place = place
        self.expected = expected
        self.found = found
        self.fix = fix
        super().__init__(f"{what}: {place}")

    def refusal(self, code: str, name: str, elsewhere: str = "") -> AotcError:
        """The refusal of `name`, such as "the store"; `elsewhere` says how another is named."""
        other = f"Take a folder of your own ({elsewhere}), or l" if elsewhere else "L"
        return AotcError(
            code,
            self.what.format(name=name),
            where=str(self.place),
            expected=self.expected,
            found=self.found,
            fix=f"{other}ook at what is in this one, then{self.fix}",
        )


def known_here() -> bool:
    """Whether this system tells owners, and opens by descriptors, as all of this needs."""
    return hasattr(os, "geteuid") and os.open in os.supports_dir_fd


def open_folder(path: Path, owners: Collection[int], *, make: int | None = None) -> int:
    """A descriptor of a folder that only `owners` and root may change, with all that leads to it.

    Folders that are missing are made with the mode `make`, if one is given.
    Raises Unsafe where somebody else may change it, and OSError where it cannot be opened or made.
    """
    allowed = _allowed(owners)
    place = path.absolute()
    shown = Path(place.anchor)
    pending = list(reversed(place.parts[1:]))
    at = os.open(shown, _ON_THE_WAY)
    try:
        sticky = _require_folder(os.fstat(at), shown, allowed, leads=bool(pending), at=at)
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                below, shown = os.open("..", _ON_THE_WAY, dir_fd=at), shown.parent
            else:
                target = _link(at, part, shown / part, allowed, sticky=sticky)
                if target is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                    way = Path(target)
                    pending += reversed(way.parts[1:] if way.is_absolute() else way.parts)
                    if not way.is_absolute():
                        continue
                    below, shown = os.open(way.anchor, _ON_THE_WAY), Path(way.anchor)
                else:
                    if make is not None:
                        _make_below(at, part, shown / part, make)
                    below, shown = os.open(part, _ON_THE_WAY, dir_fd=at), shown / part
            os.close(at)
            at = below
            sticky = _require_folder(
                os.fstat(at), shown, allowed, leads=bool(pending), in_sticky=sticky, at=at
            )
        # A link may have led here last, before it was known that nothing follows.
        _require_folder(os.fstat(at), shown, allowed, leads=False, at=at)
        return os.open(".", FOLDER, dir_fd=at)
    except OSError as error:
        if error.filename is None or not os.path.isabs(error.filename):  # noqa: PTH117
            error.filename = str(shown)
        raise
    finally:
        os.close(at)


def sizes_below(folder: int, shown: Path, owners: Collection[int]) -> dict[str, int]:
    """Sizes in bytes of all files below an open folder, by path, once all of it is found safe.

    Raises Unsafe where somebody else than `owners` or root may change a file or folder of it, or
    where something is a link; and OSError.
    """
    sizes: dict[str, int] = {}
    allowed = _allowed(owners)
    _require(os.fstat(folder), shown, allowed)
    _walk(folder, shown, "", allowed, sizes)
    return sizes


def _allowed(owners: Collection[int]) -> frozenset[int]:
    """Root and the owners, without a number that stands for all that have none here."""
    return frozenset((ROOT_USER, *(each for each in owners if not _is_outside(each))))


def _make_below(at: int, part: str, shown: Path, mode: int) -> None:
    try:
        os.stat(part, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        try:
            make_below(part, mode, at=at)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(shown)) from None


def _link(at: int, part: str, shown: Path, allowed: Collection[int], *, sticky: bool) -> str | None:
    """Where a link leads that is safe to follow; None for what is no link, or not there."""
    try:
        found = os.stat(part, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    if found.st_uid not in allowed and (sticky or not _is_outside(found.st_uid)):
        raise Unsafe(
            "{name} is reached through a link of another user",
            shown,
            expected=_named(allowed),
            found=f"user {found.st_uid}",
            fix=" name the folder itself",
        )
    return os.readlink(part, dir_fd=at)


def _walk(
    folder: int, shown: Path, above: str, allowed: Collection[int], sizes: dict[str, int]
) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{above}{entry.name}"
            found = entry.stat(follow_symlinks=False)
            _require(found, shown / path, allowed)
            if not stat.S_ISDIR(found.st_mode):
                sizes[path] = found.st_size
                continue
            below = os.open(entry.name, FOLDER, dir_fd=folder)
            try:
                _require(os.fstat(below), shown / path, allowed)
                _walk(below, shown, f"{path}/", allowed, sizes)
            finally:
                os.close(below)


def _require(found: os.stat_result, shown: Path, allowed: Collection[int]) -> None:
    """Raises Unsafe for a file or folder in the place that others may change, and for a link."""
    if stat.S_ISLNK(found.st_mode):
        raise Unsafe(
            "{name} holds a link",
            shown,
            expected="a file or folder",
            found="a link",
            fix=" remove it, and install anew",
        )
    if found.st_uid not in allowed:
        raise _owned(found, shown, allowed, what="{name} holds what is another user's")
    if found.st_mode & _OTHERS_WRITE:
        raise _written(found, shown, leads=False, what="{name} holds what others may write")


def _require_folder(
    found: os.stat_result,
    shown: Path,
    allowed: Collection[int],
    *,
    leads: bool,
    at: int,
    in_sticky: bool = False,
) -> bool:
    """Raises Unsafe for a folder that others may change; else whether all may write it."""
    if found.st_uid not in allowed and not (leads and not in_sticky and _is_outside(found.st_uid)):
        what = "{name} lies in another user's folder" if leads else "{name} belongs to another user"
        raise _owned(found, shown, allowed, what)
    if not found.st_mode & _OTHERS_WRITE:
        return False
    if leads and found.st_mode & stat.S_ISVTX:
        return True
    if leads and found.st_mode & _OTHERS_WRITE == stat.S_IWGRP and _is_private(found, at):
        return False
    what = "{name} lies in a folder that others may write" if leads else "others may write {name}"
    raise _written(found, shown, leads=leads, what=what)


def _owned(found: os.stat_result, shown: Path, allowed: Collection[int], what: str) -> Unsafe:
    return Unsafe(
        what,
        shown,
        expected=_named(allowed),
        found=f"user {found.st_uid}",
        fix=f", as root: chown {os.geteuid()} {shown}",
    )


def _written(found: os.stat_result, shown: Path, *, leads: bool, what: str) -> Unsafe:
    writers = "g" if found.st_mode & stat.S_IWGRP else ""
    writers += "o" if found.st_mode & stat.S_IWOTH else ""
    who = "" if os.geteuid() in (ROOT_USER, found.st_uid) else f", as user {found.st_uid} or root"
    # What all share, as /tmp: each keeps their own there.
    instead = " (or with +t, where all are to write)" if leads and "o" in writers else ""
    return Unsafe(
        what,
        shown,
        expected="nothing that group or others may write",
        found=f"mode {stat.S_IMODE(found.st_mode):04o}",
        fix=f"{who}{instead}: chmod {writers}-w {shown}",
    )


def _named(users: Collection[int]) -> str:
    return "user " + " or ".join(str(each) for each in sorted(users))


def _is_private(found: os.stat_result, folder: int) -> bool:
    """Whether the group of a folder of the caller's is the caller alone, as far as is known."""
    import grp
    import pwd

    if found.st_uid != os.geteuid():
        return False
    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    if (user.pw_gid, user.pw_name) != (group.gr_gid, group.gr_name):
        return False
    if set(group.gr_mem) - {user.pw_name}:
        return False
    if any(each.pw_gid == group.gr_gid and each.pw_uid != user.pw_uid for each in pwd.getpwall()):
        return False
    return not _has_list(folder)


def _has_list(folder: int) -> bool:
    """Whether an access list says who may write; what a mode says of the group is then theirs."""
    if not hasattr(os, "listxattr"):
        return True
    try:
        readable = os.open(".", FOLDER, dir_fd=folder)
        try:
            return "system.posix_acl_access" in os.listxattr(readable)
        finally:
            os.close(readable)
    except OSError as error:
        return error.errno not in (errno.ENOTSUP, errno.EOPNOTSUPP)


def _is_outside(user: int) -> bool:
    """Whether a user is one that this process's user namespace has no name for.

    All of them show as one number (user_namespaces(7)), which says so only where the namespace
    does not give it to somebody inside.
    """
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
        rows = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return False
    if user != overflow:
        return False
    for row in rows:
        first, _, count = (int(each) for each in row.split())
        if first <= user < first + count:
            return False
    return True
