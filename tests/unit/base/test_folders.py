"""Folders that aotc makes have the intended mode, whatever the umask is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aotc.base.files.folders import PRIVATE, SHARED, change_mode, make_below, make_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("wanted", [PRIVATE, SHARED])
def test_all_that_is_made_has_the_mode(mask: int, wanted: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    with umask(mask):
        make_folder(tmp_path / "a" / "b" / "c", wanted)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [wanted] * 3
    assert mode(tmp_path) == 0o2775


def test_what_is_there_stays(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o750)
    (tmp_path / "link").symlink_to(there)
    make_folder(there)
    make_folder(tmp_path / "link" / "below")
    assert mode(there) == 0o750
    assert mode(there / "below") == 0o700
    assert not make_below(there, SHARED)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


def test_a_mode_is_given_through_no_link(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(there)
    with pytest.raises(OSError):
        change_mode(tmp_path / "link", SHARED)
    assert mode(there) == 0o700


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to give it away")
def test_a_folder_of_somebody_else_is_not_changed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, 12345)
    with pytest.raises(PermissionError):
        change_mode(theirs, SHARED)
