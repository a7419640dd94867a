"""Whether only its owners can change a folder, checked on open descriptors instead of paths.

The walk begins at `/` and goes down with an `openat` without links, relative to the folder that
was just checked.  Each folder belongs to root or to an owner, and nobody else may write it.  Its
entries therefore stay, and the path leads to the same folder for as long as that holds.

  - A folder that everybody may write is accepted on the way if it has the sticky bit and the entry
    below it is an owner's (inode(7)): nobody else can move that entry.  The last folder of a path
    is never accepted so.
  - A link is followed, step by step, if it belongs to root or an owner and is in such a folder:
    whoever could change the link could change the folder as well.
  - Where homes are `drwxrwxr-x ann ann`, as with a umask of 002, the group is one person: it may
    write the folders above the last one if they are the caller's and the group is the caller's
    primary one, has their name, and has no other known member.
  - In a user namespace without a number for a folder's owner (a rootless container), the owner is
    outside of it, such as root of the host, who provided the folder.  It is accepted above the last
    one as long as nobody else may write it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import FOLDER, make_below

ROOT_USER: Final = 0
_GROUP_OR_OTHERS_WRITE: Final = 0o022
_MAX_LINKS: Final = 40
# O_PATH: folders above the last one need not be readable, only searchable.
_ON_THE_WAY: Final = getattr(os, "O_PATH", 0) | FOLDER


class Unsafe(Exception):
    """Somebody other than the owners can change what is at a path.

    `place` is the folder or file that allows it.  `fix` completes the sentence "Look at what is in
    this one, then ...".
    """

    def __init__(self, what: str, place: Path, *, expected: str, found: str, fix: str) -> None:
        self.what = what
        self.place = place
        self.expected = expected
        self.found = found
        self.fix = fix
        super().__init__(f"{what}: {place}")

    def refusal(self, code: str, name: str, setting: str = "") -> AotcError:
        """The refusal of `name`, such as "the store"; `setting` is how to state another folder."""
        other = f"Take a folder of your own ({setting}), or l" if setting else "L"
        return AotcError(
            code,
            self.what.format(name=name),
            where=str(self.place),
            expected=self.expected,
            found=self.found,
            fix=f"{other}ook at what is in this one, then{self.fix}",
        )


def can_check_owners() -> bool:
    """Whether this system reports owners and opens relative to descriptors, as the checks need."""
    return hasattr(os, "geteuid") and os.open in os.supports_dir_fd


def open_folder(path: Path, owners: Collection[int], *, make: int | None = None) -> int:
    """A descriptor of a folder that only `owners` and root can change, as all folders above it.

    Missing folders are made with the mode `make`, if given.
    Raises Unsafe if somebody else can change one, and OSError if it cannot be opened or made.
    """
    allowed = _allowed_users(owners)
    place = path.absolute()
    shown = Path(place.anchor)
    pending = list(reversed(place.parts[1:]))
    at = os.open(shown, _ON_THE_WAY)
    try:
        sticky = _require_folder(os.fstat(at), shown, allowed, above_last=bool(pending), at=at)
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                below, shown = os.open("..", _ON_THE_WAY, dir_fd=at), shown.parent
            else:
                target = _link_target(at, part, shown / part, allowed, sticky=sticky)
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
                os.fstat(at), shown, allowed, above_last=bool(pending), in_sticky=sticky, at=at
            )
        # The last step may have been a link; only now is it known that nothing follows.
        _require_folder(os.fstat(at), shown, allowed, above_last=False, at=at)
        return os.open(".", FOLDER, dir_fd=at)
    except OSError as error:
        if error.filename is None or not os.path.isabs(error.filename):  # noqa: PTH117
            error.filename = str(shown)
        raise
    finally:
        os.close(at)


def sizes_below(folder: int, shown: Path, owners: Collection[int]) -> dict[str, int]:
    """Sizes in bytes of all files below an open folder, by path, after checking all of it.

    Raises Unsafe if anybody but `owners` and root can change one of its files or folders, or if it
    contains a link; and OSError.
    """
    sizes: dict[str, int] = {}
    allowed = _allowed_users(owners)
    _require_unchangeable(os.fstat(folder), shown, allowed)
    _collect_sizes(folder, shown, "", allowed, sizes)
    return sizes


def _allowed_users(owners: Collection[int]) -> frozenset[int]:
    """Root and the owners, without a number that stands for all users outside the namespace."""
    return frozenset((ROOT_USER, *(user for user in owners if not _is_outside_namespace(user))))


def _make_below(at: int, part: str, shown: Path, mode: int) -> None:
    try:
        os.stat(part, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        try:
            make_below(part, mode, at=at)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(shown)) from None


def _link_target(
    at: int, part: str, shown: Path, allowed: Collection[int], *, sticky: bool
) -> str | None:
    """The target of a link that is safe to follow; None if there is no link."""
    try:
        found = os.stat(part, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    if found.st_uid not in allowed and (sticky or not _is_outside_namespace(found.st_uid)):
        raise Unsafe(
            "{name} is reached through a link of another user",
            shown,
            expected=_user_list(allowed),
            found=f"user {found.st_uid}",
            fix=" name the folder itself",
        )
    return os.readlink(part, dir_fd=at)


def _collect_sizes(
    folder: int, shown: Path, above: str, allowed: Collection[int], sizes: dict[str, int]
) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{above}{entry.name}"
            found = entry.stat(follow_symlinks=False)
            _require_unchangeable(found, shown / path, allowed)
            if not stat.S_ISDIR(found.st_mode):
                sizes[path] = found.st_size
                continue
            below = os.open(entry.name, FOLDER, dir_fd=folder)
            try:
                _require_unchangeable(os.fstat(below), shown / path, allowed)
                _collect_sizes(below, shown, f"{path}/", allowed, sizes)
            finally:
                os.close(below)


def _require_unchangeable(found: os.stat_result, shown: Path, allowed: Collection[int]) -> None:
    """Raise Unsafe for a link, and for a file or folder that others can change."""
    if stat.S_ISLNK(found.st_mode):
        raise Unsafe(
            "{name} contains a link",
            shown,
            expected="a file or folder",
            found="a link",
            fix=" remove it, and install again",
        )
    if found.st_uid not in allowed:
        raise _owned_by_another(found, shown, allowed, what="{name} contains another user's files")
    if found.st_mode & _GROUP_OR_OTHERS_WRITE:
        what = "{name} contains what others may write"
        raise _writable_by_others(found, shown, above_last=False, what=what)


def _require_folder(
    found: os.stat_result,
    shown: Path,
    allowed: Collection[int],
    *,
    above_last: bool,
    at: int,
    in_sticky: bool = False,
) -> bool:
    """Raise Unsafe for a folder that others can change; whether it is a sticky one for all."""
    if found.st_uid not in allowed and not (
        above_last and not in_sticky and _is_outside_namespace(found.st_uid)
    ):
        what = (
            "{name} is in another user's folder" if above_last else "{name} belongs to another user"
        )
        raise _owned_by_another(found, shown, allowed, what)
    if not found.st_mode & _GROUP_OR_OTHERS_WRITE:
        return False
    if above_last and found.st_mode & stat.S_ISVTX:
        return True
    if (
        above_last
        and found.st_mode & _GROUP_OR_OTHERS_WRITE == stat.S_IWGRP
        and _has_private_group(found, at)
    ):
        return False
    what = (
        "{name} is in a folder that others may write" if above_last else "others may write {name}"
    )
    raise _writable_by_others(found, shown, above_last=above_last, what=what)


def _owned_by_another(
    found: os.stat_result, shown: Path, allowed: Collection[int], what: str
) -> Unsafe:
    return Unsafe(
        what,
        shown,
        expected=_user_list(allowed),
        found=f"user {found.st_uid}",
        fix=f", as root: chown {os.geteuid()} {shown}",
    )


def _writable_by_others(
    found: os.stat_result, shown: Path, *, above_last: bool, what: str
) -> Unsafe:
    writers = "g" if found.st_mode & stat.S_IWGRP else ""
    writers += "o" if found.st_mode & stat.S_IWOTH else ""
    who = "" if os.geteuid() in (ROOT_USER, found.st_uid) else f", as user {found.st_uid} or root"
    # A shared folder such as /tmp: the sticky bit protects what each user keeps there.
    instead = " (or with +t, if everybody needs to write)" if above_last and "o" in writers else ""
    return Unsafe(
        what,
        shown,
        expected="not writable by group or others",
        found=f"mode {stat.S_IMODE(found.st_mode):04o}",
        fix=f"{who}{instead}: chmod {writers}-w {shown}",
    )


def _user_list(users: Collection[int]) -> str:
    return "user " + " or ".join(str(user) for user in sorted(users))


def _has_private_group(found: os.stat_result, folder: int) -> bool:
    """Whether the group of one of the caller's folders has no other member, as far as is known."""
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
    if any(
        entry.pw_gid == group.gr_gid and entry.pw_uid != user.pw_uid for entry in pwd.getpwall()
    ):
        return False
    return not _has_access_list(folder)


def _has_access_list(folder: int) -> bool:
    """Whether an access list says who may write; the mode's group bits are then its mask."""
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


def _is_outside_namespace(user: int) -> bool:
    """Whether a user has no number in this process's user namespace.

    All such users show as one number (user_namespaces(7)), unless the namespace maps that number
    to somebody.
    """
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
        rows = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return False
    if user != overflow:
        return False
    for row in rows:
        first, _, count = (int(number) for number in row.split())
        if first <= user < first + count:
            return False
    return True
