"""Replacing, renaming, removing and cloning files and folders, each in one step."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Final, Protocol

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.folders import ATTESTATIONS, EXPORTED, FOLDER, MANIFEST, PAYLOAD
from aotc.base.files.locks import mounted_in
from aotc.base.records import record

# What may be replaced, and how a finished file or folder takes its name in one step.
#
# With an exchange of names (renameat2 of Linux), a reader finds the old output or the new one, and
# nothing in between. Without it, as on some network file systems, the old output is moved aside
# first, and back if the rest fails. A folder in a lower layer of an overlay, as in every container,
# can be neither exchanged nor moved: it is copied aside, emptied, and then replaced by a rename. In
# the last two cases `recover` repairs what a killed process leaves.


NEW: Final = "new"
"""The draft in a work folder; once it is renamed, nothing needs to be restored."""
OLD: Final = "old"
"""The old output that was moved aside, in the same folder as the draft that replaces it."""


@record(kw_only=False)
class FolderKind:
    """A folder that is written as a whole: its name, and the file that makes it one.

    `parts` is everything that it contains, as anything else in it belongs to somebody; None: that
    is for the caller to know.
    """

    name: str
    marker: str
    parts: frozenset[str] | None = None

    def is_at(self, folder: Path) -> bool:
        """Whether a folder, and not a link to one, is of this kind."""
        return not folder.is_symlink() and (folder / self.marker).is_file()


ARTIFACT: Final = FolderKind("an artifact", MANIFEST, frozenset((PAYLOAD, ATTESTATIONS)))
EXPORT: Final = FolderKind("an export", EXPORTED)
_MARKERS: Final = (MANIFEST, EXPORTED)
# Another process may replace the same output: the slower one tries again.
_MAX_TRIES: Final = 200
_PAUSE_SECONDS: Final = 0.01

EXISTS: Final = frozenset((errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR))
"""Errors that say that something has the name already."""
# Errors of kernels, file systems and sandboxes without this kind of rename.  If permissions are the
# cause, the plain rename that follows fails with the same error.
UNKNOWN: Final = frozenset(
    (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.ENOTTY)
)

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
# Numbers of renameat2, for C libraries without a function for it.
_SYSCALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}

# The Linux ioctl that makes a file share another's blocks until one is written (ioctl_ficlone(2)).
_FICLONE: Final = 0x40049409


def check_output(
    place: Path,
    *,
    folder: bool = False,
    kind: FolderKind = ARTIFACT,
    force: bool = False,
    writes_through: bool = False,
    fix: str = "",
) -> None:
    """Raise AOTC-I017 if what is at `place` must stay, AOTC-I026 if nothing can be written there.

    Nothing new is written within an artifact, which would no longer verify.
    Without `force` anything that exists stays.  With it, an output that is a `folder` replaces only
    one of its `kind` with nothing else in it, and a file replaces only a regular file that this
    user may write.  Other folders, links, devices and pipes always stay.
    `writes_through`: the caller follows links and writes to devices instead of replacing them.
    """
    try:
        why = reason_to_keep(place, folder=folder, kind=kind, writes_through=writes_through)
        if why:
            what = f"the output exists and {why}, so that --force does not replace it"
            fix = fix or "Choose another output with -o, or remove it yourself."
            raise _refusal(place, what, fix)
        if why is not None and not force:
            raise _refusal(place, "the output exists", fix)
        if why is None:
            _require_folder(place)
    except OSError as error:
        raise cannot_write(error, "cannot write the output", str(place)) from None


def _require_folder(place: Path) -> None:
    parent = place.absolute().parent
    if not parent.is_dir():
        raise AotcError("AOTC-I026", "the output's folder does not exist", where=str(place.parent))
    # `access` raises nothing for a neighbour that may not be looked at.
    around = (parent.resolve() / place.name).parents
    if any(os.access(each / MANIFEST, os.F_OK) for each in around):
        raise AotcError(
            "AOTC-I026",
            "the output would be within an artifact, which holds what was signed and nothing else",
            where=str(place),
            fix="Choose another output, outside of the artifact.",
        )


def reason_to_keep(
    place: Path,
    *,
    folder: bool = False,
    kind: FolderKind = ARTIFACT,
    writes_through: bool = False,
) -> str | None:
    """Why what is at `place` must stay; empty if it may be replaced, None if there is nothing.

    See `check_output`.  Raises OSError.
    """
    try:
        found = named = place.lstat()
    except FileNotFoundError:
        return None
    if writes_through and not stat.S_ISDIR(found.st_mode):
        try:
            found = place.stat()
        except FileNotFoundError:
            return ""
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            return ""
    if stat.S_ISLNK(found.st_mode):
        return f"is not {kind.name} but a link" if folder else "is a link"
    if folder:
        why = _reason_to_keep_folder(place, kind)
        if not why or _is_unchanged(place, named):
            return why
        # Somebody replaced it meanwhile: look at the new one.
        return reason_to_keep(place, folder=folder, kind=kind, writes_through=writes_through)
    if not stat.S_ISREG(found.st_mode):
        return "is a folder" if stat.S_ISDIR(found.st_mode) else "is not a regular file"
    owner = getattr(os, "geteuid", lambda: found.st_uid)()
    if owner in (0, found.st_uid) or os.access(place, os.W_OK):
        return ""
    return "belongs to another user and is not writable"


def _reason_to_keep_folder(place: Path, kind: FolderKind) -> str:
    if not place.name.strip(".") or not kind.is_at(place):
        return f"is not {kind.name}"
    try:
        found = {entry.name for entry in place.iterdir()}
    except FileNotFoundError:
        return f"is not {kind.name}"
    foreign = sorted(found - kind.parts) if kind.parts is not None else ()
    if foreign:
        return f"contains {foreign[0]!r}, which is not part of {kind.name}"
    mounted = mounted_in(place)
    if mounted is not None:
        # Removing the replaced folder would remove what is mounted there.
        if mounted == place.resolve():
            return "is a mount point"
        return f"has {mounted.name!r} mounted in it"
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return ""
    # A process that runs in a folder keeps it.
    return "holds the current folder" if here.is_relative_to(place.resolve()) else ""


def put_in_place(
    draft: Path,
    place: Path,
    *,
    kind: FolderKind = ARTIFACT,
    force: bool = False,
    fix: str = "",
) -> None:
    """Rename the finished file or folder `draft` to `place`.

    Afterwards what it replaced is at `draft`, or at `OLD` in the same folder; the caller removes
    it.  If several processes replace the same output, the last one's remains.
    Raises AOTC-I017 as `check_output` does, and OSError; the old output is then unchanged.
    """
    folder = draft.is_dir()
    for _ in range(_MAX_TRIES):
        check_output(place, folder=folder, kind=kind, force=force, fix=fix)
        try:
            rename_new(draft, place)
            return
        except FileExistsError:
            if not force:
                raise _refusal(place, "the output exists", fix) from None
        try:
            if _replace(draft, place, kind if folder else None):
                return
        except OSError as error:
            vanished = error.errno == errno.ENOENT and os.path.lexists(draft)
            if error.errno not in EXISTS and not vanished:
                raise
        time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - only to get out of step
    raise AotcError(
        "AOTC-I026",
        "other processes keep replacing the output",
        where=str(place),
        fix="Let only one process write it at a time.",
    )


def recover(old: Path, place: Path) -> bool:
    """Restore what a killed process moved aside; whether it was restored.

    It is restored only if nothing is at `place`, or an incomplete remainder of `old`.
    Raises OSError.
    """
    if not os.path.lexists(old):
        return False
    if not os.path.lexists(place):
        try:
            rename_new(old, place)
        except FileExistsError:
            return False
        return True
    if not _is_remainder(place, old):
        return False
    empty(place)
    old.rename(place)
    return True


def _is_unchanged(place: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(place.lstat(), found)
    except FileNotFoundError:
        return False


def _refusal(place: Path, what: str, fix: str) -> AotcError:
    return AotcError("AOTC-I017", what, where=str(place), fix=fix)


def _replace(draft: Path, place: Path, kind: FolderKind | None) -> bool:
    """Replace what is at `place`; False if somebody else changed it meanwhile."""
    try:
        exchange(draft, place)
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise
    else:
        # It may have changed between the check and the exchange.
        if reason_to_keep(draft, folder=kind is not None, kind=kind or ARTIFACT):
            exchange(draft, place)
            return False
        return True
    if kind is None:
        draft.replace(place)
        return True
    old = draft.with_name(OLD)
    erase(old)
    try:
        place.rename(old)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_complete(place, old)
        return _replace_in_lower_layer(draft, place, old)
    # Give `draft` the name of the folder that was moved aside; on failure move that one back.
    try:
        if kind.is_at(old):
            draft.rename(place)
            return True
    except BaseException as error:
        recover(old, place)
        if isinstance(error, OSError) and error.errno in EXISTS:
            return False
        raise
    recover(old, place)
    return False


def _replace_in_lower_layer(draft: Path, place: Path, old: Path) -> bool:
    """Empty a folder that cannot be moved, after `old` was copied from it, and take its name."""
    descriptor = os.open(place, FOLDER)
    try:
        # What another process puts at `place` meanwhile is not emptied.
        empty_open(descriptor)
        draft.rename(place)
    except BaseException as error:
        recover(old, place)
        if isinstance(error, OSError) and error.errno in EXISTS:
            return False
        raise
    finally:
        os.close(descriptor)
    return True


def _copy_complete(source: Path, target: Path) -> None:
    """Copy a folder; the copy gets its name only when it is complete."""
    part = target.with_name(f"{target.name}.part")
    erase(part)
    shutil.copytree(source, part, symlinks=True)
    part.rename(target)


def _is_remainder(place: Path, complete: Path) -> bool:
    """Whether `place` is an emptied artifact's remainder: everything in it is in `complete` too."""
    if place.is_symlink() or not place.is_dir():
        return False
    if any((place / marker).exists() for marker in _MARKERS):
        return False
    return all(
        os.path.lexists(complete / path.relative_to(place))
        for folder, folders, files in os.walk(place)
        for path in (Path(folder, name) for name in (*folders, *files))
    )


# Renaming without replacing, and exchanging two names: renameat2 of Linux, or a substitute.


def rename_new(source: Path, target: Path) -> None:
    """Rename a file or folder to an unused name; raises FileExistsError, OSError."""
    try:
        _renameat2(source, target, _NOREPLACE)
        return
    except OSError as error:
        if error.errno in EXISTS:
            raise _exists(target) from None
        if error.errno not in UNKNOWN:
            raise
    if os.path.lexists(target):
        raise _exists(target)
    if not source.is_dir():
        try:
            # Unlike a rename, a link never replaces a name that another process took meanwhile.
            os.link(source, target, follow_symlinks=False)
            source.unlink()
            return
        except FileExistsError:
            raise _exists(target) from None
        except OSError as error:
            if error.errno not in (*UNKNOWN, errno.EMLINK):
                raise
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in EXISTS:
            raise _exists(target) from None
        raise


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two files or folders in one step; raises OSError.

    Its errno is EINVAL, ENOSYS or EXDEV if kernel, file system or layer do not support it.
    """
    _renameat2(one, other, _EXCHANGE)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    """Call renameat2(2); raises OSError, with ENOSYS if the system does not have it."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))
    import ctypes

    # Every other rename raises this audit event too.
    sys.audit("os.rename", os.fspath(source), os.fspath(target), -1, -1)
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
    if hasattr(library, "renameat2"):
        failed = library.renameat2(*arguments, ctypes.c_uint(flags))
    else:
        number = _SYSCALLS.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(source), None, str(target))
        failed = library.syscall(ctypes.c_long(number), *arguments, ctypes.c_uint(flags))
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))


def _exists(place: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))


# Removing files and folders: completely, hidden first, and an artifact's manifest first.


def move_aside(path: Path, aside: Path) -> bool:
    """Rename a file or folder to `aside` in the same file system; False if it is already gone.

    The caller then removes `aside` with `erase`.  A folder in a lower layer of an overlay cannot
    be renamed: it is removed in place, the manifest of an artifact first.  Raises OSError.
    """
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.EXDEV or not path.is_dir() or path.is_symlink():
            raise
        empty(path)
        path.rmdir()
    return True


def erase(path: Path) -> None:
    """Remove a file or a folder, including read-only entries, as far as possible.

    Links are removed and not followed.  An interrupt is raised after the removal.
    """
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            _erase(path)
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def empty(folder: Path) -> None:
    """Remove everything in a folder, first what makes it one of its kind; raises OSError."""
    descriptor = os.open(folder, FOLDER)
    try:
        empty_open(descriptor)
    finally:
        os.close(descriptor)


def empty_open(descriptor: int) -> None:
    """Remove everything in an open folder."""
    for marker in _MARKERS:
        try:
            os.unlink(marker, dir_fd=descriptor)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except PermissionError:
            _make_writable(descriptor)
            os.unlink(marker, dir_fd=descriptor)
    for name in os.listdir(descriptor):
        if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
            try:
                shutil.rmtree(name, dir_fd=descriptor)
            except PermissionError:
                _make_writable(descriptor)
                shutil.rmtree(name, dir_fd=descriptor)
        else:
            os.unlink(name, dir_fd=descriptor)


def _make_writable(descriptor: int) -> None:
    """Make an open folder and all folders below it writable for this user; follows no link."""
    for _, _, _, folder in os.fwalk(dir_fd=descriptor, follow_symlinks=False):
        os.fchmod(folder, 0o700)


def _erase(path: Path) -> None:
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            descriptor = os.open(path, FOLDER)
            try:
                _make_writable(descriptor)
            finally:
                os.close(descriptor)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return


# Copying by sharing blocks between files, on file systems that support it.


class Opened(Protocol):
    """An open file; `fileno` raises `OSError` if it has no descriptor."""

    def fileno(self) -> int:
        """The file descriptor."""


def share_blocks(source: Opened | int, target: int) -> bool:
    """Give an open file the content of another without copying; False if that is not possible.

    It is not possible if `source` is a member of a packed artifact instead of a file of its own.
    """
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source if isinstance(source, int) else source.fileno())
    except OSError:
        return False
    return True
