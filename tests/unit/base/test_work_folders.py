"""Work folders: the next command removes those of ended processes and keeps all others."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.base.files import work_folders
from aotc.base.files.replacing import NEW, OLD
from aotc.base.files.work_folders import (
    DAY_SECONDS,
    MINUTE_SECONDS,
    draft_path,
    locked_folder,
    name_with_owner,
    remove_abandoned,
    remove_abandoned_in,
    temporary_folder,
    work_folder,
)

FORK = multiprocessing.get_context("fork")
TOOLCHAIN = Path(work_folders.__file__).parents[2]
NAME = re.compile(r"(.*aotcx?-)([0-9a-f]{12})-(\d+)-(\d+)-(\d+)-([0-9a-f]{16})")


def work_in(
    connection: Connection, open_folder: Callable[[], AbstractContextManager[Path]]
) -> None:
    with open_folder() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("half")
        connection.send(str(folder))
        time.sleep(600)


@contextmanager
def working_process(
    open_folder: Callable[[], AbstractContextManager[Path]],
) -> Iterator[tuple[Any, Path]]:
    """A running process, and the work folder that it uses."""
    mine, theirs = FORK.Pipe()
    process = FORK.Process(target=work_in, args=(theirs, open_folder))
    process.start()
    try:
        yield process, Path(mine.recv())
    finally:
        process.kill()
        process.join()


def folder_of_killed(open_folder: Callable[[], AbstractContextManager[Path]]) -> Path:
    """The work folder that a killed process left."""
    with working_process(open_folder) as (_, folder):
        pass
    assert (folder / "deep" / "file").exists()
    return folder


def abandoned_folder(parent: Path, **changed: str) -> Path:
    """A folder left by a process of this boot that has ended, except for `changed`."""
    found = NAME.fullmatch(name_with_owner(".out."))
    assert found is not None
    start, boot, space, _, _, rest = found.groups()
    fields = {"boot": boot, "space": space, "pid": "4194305", "start": "1", **changed}
    place = parent / f"{start}{'-'.join(fields.values())}-{rest}"
    (place / "deep").mkdir(parents=True)
    (place / "deep" / "file").write_text("half")
    return place


def set_age(place: Path, seconds: float) -> Path:
    then = time.time() - seconds
    for path in (place, *place.rglob("*")):
        os.utime(path, (then, then))
    return place


def test_it_is_gone_at_the_end(tmp_path: Path) -> None:
    with work_folder(tmp_path / "out") as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".out.")
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ZeroDivisionError), work_folder(tmp_path / "out") as folder:
        (folder / "file").write_text("x")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AotcError) as caught, work_folder(tmp_path / "none" / "out"):
        pass
    assert caught.value.code == "AOTC-I026"
    with pytest.raises(AotcError) as caught, draft_path(tmp_path / "out") as draft:
        (draft / "none").write_text("x")
    assert caught.value.code == "AOTC-I026"
    assert list(tmp_path.iterdir()) == []


def test_what_the_dead_left_goes_with_the_next(tmp_path: Path) -> None:
    place = tmp_path / "out"
    dead = folder_of_killed(lambda: work_folder(place))
    # A command whose output has another name in the same folder removes it as well.
    with working_process(lambda: work_folder(tmp_path / "other")) as (_, alive):
        assert not dead.exists()
        with work_folder(place) as mine:
            assert set(tmp_path.iterdir()) == {alive, mine}


def test_one_that_lives_stays_without_its_lock_too(tmp_path: Path) -> None:
    """A file system may lack locks, and a lock is taken shortly after its folder is made."""
    with working_process(lambda: work_folder(tmp_path / "out")) as (process, folder):
        set_age(folder, 10 * DAY_SECONDS)
        assert not remove_abandoned(folder)
        unlocked = folder.with_name(folder.name[:-16] + "0" * 16)
        shutil.copytree(folder, unlocked)
        assert NAME.fullmatch(unlocked.name)[4] == str(process.pid)  # type: ignore[index]
        assert not remove_abandoned(set_age(unlocked, 10 * DAY_SECONDS))
    assert remove_abandoned(unlocked)


def test_a_number_of_a_process_comes_again(tmp_path: Path) -> None:
    assert remove_abandoned(abandoned_folder(tmp_path, pid=str(os.getpid()), start="1"))
    start = NAME.fullmatch(name_with_owner())[5]  # type: ignore[index]
    assert not remove_abandoned(abandoned_folder(tmp_path, pid=str(os.getpid()), start=start))


def test_a_process_that_nobody_waited_for_is_dead(tmp_path: Path) -> None:
    with working_process(lambda: work_folder(tmp_path / "out")) as (process, folder):
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}").exists()
        assert remove_abandoned(folder)


def test_a_lock_that_is_held_says_that_it_is_in_use(tmp_path: Path) -> None:
    place = set_age(abandoned_folder(tmp_path), 10 * DAY_SECONDS)
    lock = work_folders.lock_path(place)
    assert lock is not None
    assert not remove_abandoned(place)
    os.close(lock)
    assert remove_abandoned(place)


def test_of_another_pid_namespace(tmp_path: Path) -> None:
    place = abandoned_folder(tmp_path, space="1")
    # If it is that new, it may not be locked yet.
    assert not remove_abandoned(set_age(place, MINUTE_SECONDS / 2))
    assert remove_abandoned(set_age(place, MINUTE_SECONDS + 1))


def test_of_another_boot_or_another_host(tmp_path: Path) -> None:
    for boot in ("0123456789ab", "0" * 12):
        place = abandoned_folder(tmp_path, boot=boot, pid=str(os.getpid()))
        assert not remove_abandoned(set_age(place, DAY_SECONDS / 2))
        set_age(place, 2 * DAY_SECONDS)
        (place / "deep" / "file").write_text("still written to")
        assert not remove_abandoned(place)
        assert remove_abandoned(set_age(place, 2 * DAY_SECONDS))


_IN_A_CONTAINER = """
import sys, time
from pathlib import Path
from aotc.base.files.work_folders import work_folder
with work_folder(Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def test_a_living_one_of_a_real_pid_namespace_stays(tmp_path: Path) -> None:
    """As in a container that shares a volume: its process ids mean nothing here."""
    words = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", _IN_A_CONTAINER]
    if subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode != 0:
        pytest.skip("no PID namespace can be made here: not as this user")
    process = subprocess.Popen(
        [*words, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        folder = set_age(Path(process.stdout.readline().strip()), 10 * DAY_SECONDS)
        # /proc is that namespace's own; the boot id and the namespace's number are printed.
        assert not remove_abandoned(folder)
    finally:
        process.kill()
        process.communicate()
    deadline = time.monotonic() + 60
    while not remove_abandoned(set_age(folder, MINUTE_SECONDS + 1)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_those_of_others_stay(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's folder needs root to be made")
    place = set_age(abandoned_folder(tmp_path), 10 * DAY_SECONDS)
    os.chown(place, pwd.getpwnam("nobody").pw_uid, -1)
    assert not remove_abandoned(place)
    assert (place / "deep" / "file").exists()


@pytest.mark.parametrize(
    "name", [".out.x1y2z3", "out", ".out.aotc", ".aotc-1-2-3-4", "aotc-check-abc", ".git"]
)
def test_folders_that_are_not_work_folders_stay(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    place.mkdir()
    assert remove_abandoned_in(set_age(tmp_path, 10 * DAY_SECONDS)) == 0
    assert place.is_dir()


def test_an_artifact_that_was_moved_aside_is_put_back(tmp_path: Path) -> None:
    """If names cannot be exchanged, a killed process may have moved the only artifact."""
    place = tmp_path / "out"
    dead = abandoned_folder(tmp_path)
    (dead / NEW).mkdir()
    (dead / OLD / "payload").mkdir(parents=True)
    (dead / OLD / "payload" / "aotc.json").write_text("{}")
    remove_abandoned_in(tmp_path)
    assert (place / "payload" / "aotc.json").read_text() == "{}"
    assert list(tmp_path.iterdir()) == [place]
    # If there is another one by now, that one stays.
    dead = abandoned_folder(tmp_path)
    (dead / NEW).mkdir()
    shutil.copytree(place, dead / OLD)
    (place / "payload" / "aotc.json").write_text("newer")
    remove_abandoned_in(tmp_path)
    assert (place / "payload" / "aotc.json").read_text() == "newer"
    assert list(tmp_path.iterdir()) == [place]
    # If the new one was in place, and was removed since, the old one is not restored.
    dead = abandoned_folder(tmp_path)
    shutil.copytree(place, dead / OLD)
    shutil.rmtree(place)
    remove_abandoned_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127, "o" * 161, "\udcff" * 200])
def test_long_names(name: str, tmp_path: Path) -> None:
    """It is restored under the output's name, which may not fit completely into a folder's name."""
    with work_folder(tmp_path / name) as folder:
        assert len(os.fsencode(folder.name)) <= 255
    dead = folder_of_killed(lambda: work_folder(tmp_path / name))
    (dead / NEW).mkdir()
    (dead / OLD / "payload").mkdir(parents=True)
    with work_folder(tmp_path / f"{name[:-1]}y"):
        assert dead.exists()
    with work_folder(tmp_path / name):
        assert (tmp_path / name / "payload").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_temporary_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = folder_of_killed(lambda: temporary_folder("check"))
    assert dead.name.startswith("aotc-check-")
    with working_process(lambda: temporary_folder("learn")) as (_, alive):
        with temporary_folder("check") as mine:
            assert set(tmp_path.iterdir()) == {alive, mine}
        assert list(tmp_path.iterdir()) == [alive]


def remove_repeatedly(parent: Path) -> None:
    while True:
        remove_abandoned_in(parent)


def test_one_that_is_looked_at_while_it_is_made(tmp_path: Path) -> None:
    processes = [FORK.Process(target=remove_repeatedly, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    try:
        for _ in range(300):
            with locked_folder(tmp_path, ".out.") as folder:
                (folder / "file").write_text("x")
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert list(tmp_path.iterdir()) == []
