"""Removing files and folders: completely, hidden first, and an artifact's manifest first."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from aotc.files.artifact_layout import MANIFEST
from aotc.files.folders import FOLDER


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
    """Remove everything in a folder, the manifest of an artifact first; raises OSError."""
    descriptor = os.open(folder, FOLDER)
    try:
        empty_open(descriptor)
    finally:
        os.close(descriptor)


def empty_open(descriptor: int) -> None:
    """Remove everything in an open folder."""
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
