"""Removing files and folders: whole, out of sight first, and the manifest of an artifact first."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from aotc.files.artifact_layout import MANIFEST
from aotc.files.folders import FOLDER


def take_away(path: Path, aside: Path) -> bool:
    """Take a file or folder out of sight, to `aside` in the same file system; False if it is gone.

    One rename, after which `aside` is the caller's to `erase`.  A folder of a lower layer cannot
    be renamed: it is erased where it is, the manifest of an artifact first.  Raises OSError.
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
    """Remove a file or a folder, read-only ones within too, as far as that goes.

    Links are removed and not followed.  An interrupt is raised once it is done.
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
    """Remove all that is in a folder, the manifest of an artifact first; raises OSError."""
    descriptor = os.open(folder, FOLDER)
    try:
        empty_open(descriptor)
    finally:
        os.close(descriptor)


def empty_open(descriptor: int) -> None:
    """Remove all that is in an open folder."""
    try:
        os.unlink(MANIFEST, dir_fd=descriptor)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except PermissionError:
        _make_writable(descriptor)
        os.unlink(MANIFEST, dir_fd=descriptor)
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
    """Let this user change all folders below an open one, and that one, following no link."""
    for _, _, _, each in os.fwalk(dir_fd=descriptor, follow_symlinks=False):
        os.fchmod(each, 0o700)


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
