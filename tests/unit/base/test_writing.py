"""Files are written completely or not at all, and only regular files are replaced."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import ROOT

from aotc.base.files import writing
from aotc.base.files.writing import (
    PREFIX,
    remove_leftovers,
    write_atomically,
    write_hidden,
    write_new,
)

TOOLCHAIN = ROOT / "toolchain"
BIG = 1 << 16


@pytest.fixture(params=["nameless", "named"], autouse=True)
def write_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to write: a system without O_TMPFILE, such as macOS, has only the second."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without a name")
    return str(request.param)


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BIG // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", b"text")
        write_new(tmp_path / "secret", b"text", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "new").read_bytes() == b"text"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_what_fails_leaves_what_was_there(tmp_path: Path, small_files: None) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"old")
    for place in (old, tmp_path / "new"):
        with pytest.raises(OSError, match=str(place)) as failed:
            write_atomically(place, bytes(BIG))
        assert failed.value.errno == errno.EFBIG
    assert old.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old"]  # noqa: PTH208


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    place = tmp_path / "file"
    contents = [bytes([number]) * BIG for number in range(4)]
    write_atomically(place, contents[0])
    done = threading.Event()
    seen: list[bytes] = []

    def read() -> None:
        while not done.is_set():
            seen.append(place.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        write_atomically(place, contents[number % 4])
    done.set()
    reader.join()
    assert seen
    assert all(content in contents for content in seen)


def test_an_old_file_keeps_its_mode_and_links_their_target(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"a longer old text")
    target.chmod(0o604)
    link.symlink_to(target.name)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_one_of_many_writes_a_new_file(tmp_path: Path) -> None:
    place = tmp_path / "key"
    won: list[int] = []

    def write(number: int) -> None:
        try:
            write_new(place, str(number).encode())
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number).encode() for number in won] == [place.read_bytes()]
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        write_new(link, b"")


def test_devices_and_pipes_are_written_to(tmp_path: Path) -> None:
    write_atomically(Path("/dev/null"), b"text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(Path("/dev/full"), b"text")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, bytes(BIG * 4))
    reader.join()
    assert got == [bytes(BIG * 4)]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_is_written_at_its_position(tmp_path: Path) -> None:
    """The target of a shell's `> log` is open: it is neither replaced nor truncated."""
    job = (
        "import sys; from pathlib import Path\n"
        "from aotc.base.files.writing import write_atomically\n"
        "print('before'); write_atomically(Path('/dev/stdout'), b'data\\n'); print('after')"
    )
    log = tmp_path / "log"
    with log.open("wb") as file:
        os.write(file.fileno(), b"first\n")
        subprocess.run(
            [sys.executable, "-c", job], stdout=file, env={"PYTHONPATH": str(TOOLCHAIN)}, check=True
        )
    assert log.read_bytes() == b"first\nbefore\ndata\nafter\n"


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    place = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    write_atomically(place, b"1")
    write_atomically(place, b"2")
    assert place.read_bytes() == b"2"
    with pytest.raises(OSError, match="n" * 256) as failed:
        write_atomically(place.with_name(place.name + "n"), b"")
    assert failed.value.errno == errno.ENAMETOOLONG


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    job = (
        "import os, sys; from pathlib import Path; from aotc.base.files import writing\n"
        "writing._locked_draft(Path(sys.argv[1]), 0o600); os.kill(os.getpid(), 9)"
    )
    words = [sys.executable, "-c", job, str(tmp_path / "file")]
    assert subprocess.run(words, env={"PYTHONPATH": str(TOOLCHAIN)}).returncode == -9
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 1
    held, descriptor = writing._locked_draft(tmp_path / "file", 0o600)
    write_atomically(tmp_path / "file", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([held.name, "file"])
    os.close(descriptor)
    remove_leftovers(tmp_path)
    assert not held.exists()


def test_unseen_means_nothing_was_there_to_see(tmp_path: Path, write_method: str) -> None:
    place, beside = tmp_path / "a", tmp_path / "b"
    for number, data in enumerate((b"1", b"2")):
        done = write_hidden(place, data, second_name=beside, new=not number)
        assert done is (write_method == "nameless")
        assert list(tmp_path.iterdir()) == ([place] if done else [])
        assert not done or place.read_bytes() == data
    if write_method == "nameless":
        with pytest.raises(FileExistsError):
            write_hidden(place, b"3", second_name=beside, new=True)
        assert place.read_bytes() == b"2"
