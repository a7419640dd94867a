"""Folders: parts of artifacts, git repositories, the user's own, and new ones of an exact mode."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

# Making folders with exactly the intended mode, independent of the umask.
#
# `PRIVATE` is for what belongs to one user (keys, configuration, state, caches, a user's own
# store). `SHARED` is for what others read (a store that several users load from). Output that a
# user asks for gets the mode of their umask and is not made here.


PRIVATE: Final = 0o700
SHARED: Final = 0o755

# Opens a folder, but not a link to one.
FOLDER: Final = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)

# Names of the parts of an artifact, the same in a folder and in a packed file.
PAYLOAD: Final = "payload"
ATTESTATIONS: Final = "attestations"
MANIFEST: Final = f"{PAYLOAD}/aotc.json"
"""The file that makes a folder an artifact.  It is removed first when a folder is emptied."""
EXPORTED: Final = "export.json"
"""The file that makes a folder an export of an artifact."""


def make_folder(path: Path, mode: int = PRIVATE) -> None:
    """Make a folder and the missing ones above it, each with exactly the mode `mode`.

    An existing folder is left unchanged.  Raises OSError.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, mode)
    make_below(path, mode)


def make_below(path: str | Path, mode: int, *, at: int | None = None) -> bool:
    """Make one folder, relative to the open folder `at` if given; False if it exists.

    Raises OSError, also if something other than a folder has the name.
    """
    try:
        os.mkdir(path, mode & 0o777, dir_fd=at)
    except FileExistsError:
        if stat.S_ISDIR(os.stat(path, dir_fd=at).st_mode):
            return False
        raise
    change_mode(path, mode, at=at)
    return True


def belongs_to_others(folder: Path) -> bool:
    """Whether a folder, or a link to it, belongs to neither this user nor root.

    Its owner may put anything into it, links too.  This happens when root runs with the home of
    another user.  Raises OSError.
    """
    if not hasattr(os, "geteuid"):
        return False
    return not {folder.lstat().st_uid, folder.stat().st_uid} <= {0, os.geteuid()}


def change_mode(path: str | Path, mode: int, *, at: int | None = None) -> None:
    """Change the mode of one of this user's folders without following links; raises OSError."""
    if not hasattr(os, "fchmod") or os.open not in os.supports_dir_fd:
        os.chmod(path, mode)  # noqa: PTH101
        return
    try:
        descriptor = os.open(path, FOLDER, dir_fd=at)
    except PermissionError:
        # A folder made under an unusual umask may not be readable.
        if not hasattr(os, "O_PATH"):
            raise
        descriptor = os.open(path, os.O_PATH | FOLDER, dir_fd=at)
        try:
            _require_own(descriptor, path)
            os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101
        finally:
            os.close(descriptor)
        return
    try:
        if stat.S_IMODE(_require_own(descriptor, path).st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _require_own(descriptor: int, path: str | Path) -> os.stat_result:
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
    return found


# A user's folders for files of programs: the XDG base directory specification.


def config_folder() -> Path | None:
    """$XDG_CONFIG_HOME or ~/.config; None for a user without a home folder."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path | None:
    """$XDG_STATE_HOME or ~/.local/state; None for a user without a home folder."""
    return _folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path | None:
    """$XDG_CACHE_HOME or ~/.cache; None for a user without a home folder."""
    return _folder("XDG_CACHE_HOME", ".cache")


def _folder(variable: str, below_home: str) -> Path | None:
    stated = os.environ.get(variable, "")
    # The specification says that relative paths are ignored.
    if stated and Path(stated).is_absolute():
        return Path(stated)
    try:
        return Path.home() / below_home
    except RuntimeError:
        return None


def repository_of(folder: Path) -> Path | None:
    """The top of the git repository that a folder is in; None in none, and in a bare one.

    That of a worktree or a submodule is its own: its `.git` is a file that says where the rest is.
    """
    place = folder.resolve()
    return next((each for each in (place, *place.parents) if _is_repository(each / ".git")), None)


def _is_repository(git: Path) -> bool:
    try:
        return git.is_file() or (git / "HEAD").is_file()
    except OSError:
        return False
