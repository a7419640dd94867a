"""Files that a file names which nobody named: in its own folder, and behind no link.

`aotc.yaml` is read because it lies in the working directory, and whoever wrote it may not be who
runs a command there.  What it names is `confine`d, and from then on every opening of such a path
begins at the folder and goes down with an `openat` a step, none of which follows a link: that a
path was good when the configuration was read says nothing of when it is opened.  What is read whole
is read once, so that what was judged is what is used.

The paths are kept in the environment, as processes that a build starts open some of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import FOLDER

_VARIABLE: Final = "_AOTC_CONFINED"
# O_PATH: folders on the way need not be readable, only searchable.
_ON_THE_WAY: Final = getattr(os, "O_PATH", 0) | FOLDER
_NO_LINK: Final = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
)
OUTSIDE: Final = "a file outside of that directory, or the directory itself"
LINKED: Final = "a file behind a link"
SPECIAL: Final = "what is neither a file nor a folder"
FIX: Final = (
    "Take it out of the file and name it on the command line, or have AOTC_CONFIG name the file."
)
# The path of a folder, its device and its inode.
Root = tuple[str, int, int]
# What was read, or why it was not, by its path.
_read: dict[str, bytes | OSError] = {}


def confine(name: str) -> None:
    """Let `name`, a file or folder, be opened below the working directory alone, and by no link.

    Raises AOTC-I052 if it lies elsewhere, or is reached by a link, or is neither a file nor a
    folder.  It need not exist.
    """
    folder = Path.cwd()  # A real path, whatever the variable PWD says.
    found = folder.stat()
    root = (str(folder), found.st_dev, found.st_ino)
    steps: list[str] = []
    for part in _below(folder, folder / name):
        if part != "..":
            steps.append(part)
            continue
        # The system would go up from where a link leads.
        _require_no_link(root, steps, name)
        if not steps:
            raise _outside(name, OUTSIDE)
        steps.pop()
    if not steps:
        raise _outside(name, OUTSIDE)
    known = json.loads(os.environ.get(_VARIABLE, "[[], []]"))[1]
    place = str(folder.joinpath(*steps))
    os.environ[_VARIABLE] = json.dumps([root, [*known, place]])
    try:
        descriptor = open_confined(place, os.O_RDONLY)
    except OSError:
        # Who uses it says what is wrong with it.
        return
    assert descriptor is not None
    os.close(descriptor)


def release() -> None:
    """Forget what was confined, and what was read."""
    os.environ.pop(_VARIABLE, None)
    _read.clear()


def is_confined(path: str | Path) -> bool:
    """Whether `path` is one that was confined, or is below one."""
    return _root_of(path) is not None


def first_read(path: str | Path, read: Callable[[], bytes]) -> bytes:
    """What `read` gave of a confined file the first time, or the error that it raised then."""
    place = os.path.abspath(path)  # noqa: PTH100
    if place not in _read:
        try:
            _read[place] = read()
        except OSError as error:
            _read[place] = error
    found = _read[place]
    if isinstance(found, OSError):
        raise OSError(found.errno, found.strerror, str(path))
    return found


def open_confined(path: str | Path, flags: int) -> int | None:
    """A descriptor of a confined file or folder; None for a path that is not confined.

    Raises AOTC-I052 where a step is a link, or what is there is neither a file nor a folder, and
    OSError.
    """
    found = folder_of(path)
    if found is None:
        return None
    folder, name = found
    try:
        descriptor = _step(folder, name, flags | _NO_LINK, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(folder)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        os.close(descriptor)
        raise _outside(path, SPECIAL)
    return descriptor


def folder_of(path: str | Path) -> tuple[int, str] | None:
    """A descriptor of the folder of a confined path, and its name there; None if it is none.

    The caller closes the descriptor.  Raises AOTC-I052 where a step is a link, and OSError.
    """
    root = _root_of(path)
    if root is None:
        return None
    *above, name = Path(os.path.abspath(path)).relative_to(root[0]).parts  # noqa: PTH100
    return _walk(root, above, path), name


def _below(folder: Path, place: Path) -> tuple[str, ...]:
    """The steps from a folder to a place, as they are stated."""
    if not place.is_relative_to(folder):
        raise _outside(place, OUTSIDE)
    return place.relative_to(folder).parts


def _require_no_link(root: Root, steps: list[str], path: str) -> None:
    # What is not there, or is no folder, is no link.
    with contextlib.suppress(OSError):
        os.close(_walk(root, steps, path))


def _walk(root: Root, steps: list[str], path: str | Path) -> int:
    """A descriptor of the folder that `steps` lead to."""
    at = _open_root(root, path)
    try:
        for part in steps:
            below = _step(at, part, _ON_THE_WAY, path)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def _open_root(root: Root, path: str | Path) -> int:
    # A process that has left the folder finds it by its path, unless that leads elsewhere by now.
    for way in (".", root[0]):
        at = os.open(way, _ON_THE_WAY)
        found = os.fstat(at)
        if (found.st_dev, found.st_ino) == root[1:]:
            return at
        os.close(at)
    raise _outside(path, OUTSIDE)


def _step(at: int, part: str, flags: int, path: str | Path) -> int:
    try:
        return os.open(part, flags, dir_fd=at)
    except OSError as error:
        # A link is ELOOP for some flags, and no folder for others.
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(at, part):
            raise _outside(path, LINKED) from None
        if error.errno == errno.ENXIO:
            raise _outside(path, SPECIAL) from None
        raise


def _is_link(at: int, part: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _root_of(path: str | Path) -> Root | None:
    """The folder that `path` is confined to; None if it is not."""
    stated = os.environ.get(_VARIABLE)
    if stated is None:
        return None
    (folder, device, inode), places = json.loads(stated)
    place = os.path.abspath(path)  # noqa: PTH100
    if any(place == each or place.startswith(f"{each}{os.sep}") for each in places):
        return folder, device, inode
    return None


def _outside(path: str | Path, what: str) -> AotcError:
    return AotcError(
        "AOTC-I052",
        f"the configuration in the working directory must not name {what}",
        where=str(path),
        fix=FIX,
    )
