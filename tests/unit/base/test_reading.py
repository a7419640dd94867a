"""Opening what others named: plain files alone, at once, and no more of them than is asked for."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from aotc.base.files.reading import file_sha256, open_plain, read_at_most


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


SPECIAL: dict[str, tuple[Callable[[Path], object], int]] = {
    "a named pipe": (os.mkfifo, errno.EINVAL),
    "a link to a pipe": (
        lambda path: (os.mkfifo(f"{path}.fifo"), path.symlink_to(f"{path}.fifo")),
        errno.EINVAL,
    ),
    "zeros without end": (lambda path: path.symlink_to("/dev/zero"), errno.EINVAL),
    "nothing": (lambda path: path.symlink_to("/dev/null"), errno.EINVAL),
    "a socket": (listening, errno.EINVAL),
    "a folder": (Path.mkdir, errno.EISDIR),
    "a dangling link": (lambda path: path.symlink_to("none"), errno.ENOENT),
    "a circle of links": (lambda path: path.symlink_to(path), errno.ELOOP),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_plain_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # The name of a socket is short.
    monkeypatch.chdir(tmp_path)
    path = Path("given")
    make, number = SPECIAL[kind]
    make(path)
    before = open_files()
    for read in (open_plain, file_sha256, lambda path: read_at_most(path, 10)):
        with pytest.raises(OSError, match=r"\[Errno ") as caught:
            read(path)
        assert caught.value.errno == number
        assert caught.value.filename is not None
    assert open_files() == before


def test_a_pipe_that_takes_the_name_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the name and the opening."""
    path = tmp_path / "given"
    path.write_bytes(b"content")
    plain = os.open

    def swapped(name: str | Path, flags: int, *rest: int) -> int:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        return plain(name, flags, *rest)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(OSError, match="named pipe"):
        open_plain(path)


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    path, link = tmp_path / "given", tmp_path / "link"
    path.write_bytes(b"0123456789")
    link.symlink_to(path)
    for place in (path, link, str(path)):
        assert read_at_most(place, 4) == b"01234"
        assert read_at_most(place, 10) == read_at_most(place, 1 << 40) == b"0123456789"
    assert file_sha256(path) == hashlib.sha256(b"0123456789").hexdigest()
    assert file_sha256(path, 2, 3) == hashlib.sha256(b"234").hexdigest()
