"""What may be replaced, and that the name always refers to something complete."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pwd
import shutil
import socket
import sys
from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.base.files import replacing
from aotc.base.files import replacing as renaming
from aotc.base.files.replacing import check_output, erase, move_aside, put_in_place
from aotc.base.files.work_folders import work_folder

FORK = multiprocessing.get_context("fork")


def artifact(place: Path, text: str = "old") -> Path:
    for name in ("payload/aotc.json", "payload/model/model.onnx", "attestations/oms"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def texts(place: Path) -> set[str]:
    """The texts of all files of an artifact: only one if it is complete."""
    found = [path.read_text() for path in place.rglob("*") if path.is_file()]
    assert len(found) == 3
    return set(found)


@pytest.fixture(params=["exchange", "EINVAL", "ENOSYS", "EPERM"])
def renameat2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Systems that can exchange names, and those that refuse it in different ways."""
    if request.param != "exchange":
        number = getattr(errno, request.param)

        def no_exchange(source: Path, target: Path, flags: int) -> None:
            raise OSError(number, os.strerror(number), str(source), None, str(target))

        monkeypatch.setattr(renaming, "_renameat2", no_exchange)
    return str(request.param)


def make(kind: str, place: Path) -> None:
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "socket":
        # Paths of sockets are short.
        before = Path.cwd()
        os.chdir(place.parent)
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(place.name)
        finally:
            os.chdir(before)
    elif kind == "device":
        try:
            os.mknod(place, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("a device cannot be made here: not as this user")
    elif kind == "folder":
        (place / "payload").mkdir(parents=True)
        (place / "payload" / "mine").write_text("mine")
    elif kind == "link to a file":
        (place.parent / "target").write_text("mine")
        place.symlink_to("target")
    elif kind == "link to an artifact":
        artifact(place.parent / "target")
        place.symlink_to("target")
    elif kind == "dangling link":
        place.symlink_to("nowhere")
    elif kind == "file":
        place.write_text("mine")
    elif kind == "artifact":
        artifact(place)
    else:
        raise AssertionError(kind)


_FOREIGN = (
    *("fifo", "socket", "device", "folder"),
    *("link to a file", "link to an artifact", "dangling link"),
)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("kind", [*_FOREIGN, "file", "artifact"])
def test_what_is_replaced(
    kind: str, folder: bool, force: bool, renameat2: str, tmp_path: Path
) -> None:
    place, work = tmp_path / "place", tmp_path / "work"
    make(kind, place)
    before = place.lstat()
    work.mkdir()
    draft = work / "new"
    if folder:
        artifact(draft, "new")
    else:
        draft.write_text("new")
    if force and kind == ("artifact" if folder else "file"):
        check_output(place, folder=folder, force=True)
        put_in_place(draft, place, force=True)
        assert (place / "payload/aotc.json" if folder else place).read_text() == "new"
        return
    with pytest.raises(AotcError) as caught:
        check_output(place, folder=folder, force=force)
    assert caught.value.code == "AOTC-I017"
    # Whatever it was when it was checked.
    with pytest.raises(AotcError) as caught:
        put_in_place(draft, place, force=force)
    assert caught.value.code == "AOTC-I017"
    after = place.lstat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (
        before.st_ino,
        before.st_mode,
        before.st_rdev,
    )
    assert draft.exists()


def test_the_file_of_another_who_lets_nobody_write_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's file needs root to be made")
    place = tmp_path / "place"
    place.write_text("mine")
    tmp_path.chmod(0o777)
    for above in (tmp_path, *tmp_path.parents[:-2]):
        above.chmod(above.stat().st_mode | 0o011)
    nobody = pwd.getpwnam("nobody").pw_uid
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setuid(nobody)
            check_output(place, force=True)
        except AotcError as error:
            status = 0 if error.code == "AOTC-I017" and "another user" in error.what else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    check_output(place, force=True)
    # Anybody may replace what is in a folder that all may write.
    place.chmod(0o666)
    pid = os.fork()
    if pid == 0:
        os.setuid(nobody)
        check_output(place, force=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_who_writes_through_links_and_to_devices_replaces_none(tmp_path: Path) -> None:
    for kind in ("fifo", "link to a file", "dangling link"):
        make(kind, tmp_path / kind)
        check_output(tmp_path / kind, force=True, writes_through=True)
    make("folder", tmp_path / "folder")
    with pytest.raises(AotcError):
        check_output(tmp_path / "folder", force=True, writes_through=True)


def test_a_thing_that_changes_between_look_and_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, draft = tmp_path / "place", tmp_path / "new"
    place.write_text("old")
    draft.write_text("new")
    looked = replacing.check_output

    def become_pipe(place: Path, **how: bool) -> None:
        looked(place, **how)  # type: ignore[arg-type]
        if not place.is_fifo():
            place.unlink()
            os.mkfifo(place)

    monkeypatch.setattr(replacing, "check_output", become_pipe)
    with pytest.raises(AotcError) as caught:
        put_in_place(draft, place, force=True)
    assert caught.value.code == "AOTC-I017"
    assert place.is_fifo()
    assert draft.read_text() == "new"


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
def test_what_fails_halfway_restores_the_old_one(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names cannot be exchanged, and the second of the two renames fails."""

    def no_exchange(source: Path, target: Path, flags: int) -> None:
        raise OSError(errno.EINVAL, "no")

    place = artifact(tmp_path / "place")
    (tmp_path / "work").mkdir()
    draft = artifact(tmp_path / "work" / "new", "new")
    renamed = Path.rename

    def failing_rename(self: Path, target: Path) -> Path:
        if self == draft:
            raise error
        return renamed(self, target)

    monkeypatch.setattr(renaming, "_renameat2", no_exchange)
    monkeypatch.setattr(Path, "rename", failing_rename)
    with pytest.raises(type(error)):
        put_in_place(draft, place, force=True)
    assert texts(place) == {"old"}


def replace_repeatedly(place: Path, number: int, exchanges: bool) -> None:
    if not exchanges:

        def no_exchange(source: Path, target: Path, flags: int) -> None:
            raise OSError(errno.EINVAL, "no")

        renaming._renameat2 = no_exchange
    for turn in range(30):
        with work_folder(place) as work:
            put_in_place(artifact(work / "new", f"{number}-{turn}"), place, force=True)


@pytest.mark.parametrize("exchanges", [True, False])
def test_several_that_replace_at_once(exchanges: bool, tmp_path: Path) -> None:
    """None is refused, one complete artifact remains, and readers always find one."""
    place = artifact(tmp_path / "place")
    processes = [
        FORK.Process(target=replace_repeatedly, args=(place, number, exchanges))
        for number in range(3)
    ]
    for process in processes:
        process.start()
    if exchanges:
        while any(process.is_alive() for process in processes):
            assert (place / "payload" / "aotc.json").is_file()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(texts(place)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def create_output(place: Path, number: int, exchanges: bool, made: str) -> None:
    if not exchanges:
        renaming._NOREPLACE = 1 << 20  # type: ignore[misc]
    with work_folder(place) as work:
        draft = work / "new"
        if made == "file":
            draft.write_text(str(number))
        else:
            artifact(draft, str(number))
        try:
            put_in_place(draft, place)
        except AotcError as error:
            sys.exit(3 if error.code == "AOTC-I017" else 4)


@pytest.mark.parametrize("made", ["file", "artifact"])
@pytest.mark.parametrize("exchanges", [True, False])
def test_of_several_that_make_a_new_one_at_once_one_does(
    exchanges: bool, made: str, tmp_path: Path
) -> None:
    for turn in range(10):
        place = tmp_path / str(turn) / "place"
        place.parent.mkdir()
        processes = [
            FORK.Process(target=create_output, args=(place, number, exchanges, made))
            for number in range(4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert sorted(process.exitcode or 0 for process in processes) == [0, 3, 3, 3]
        assert [path.name for path in place.parent.iterdir()] == ["place"]


def test_read_only_folders_are_erased(tmp_path: Path) -> None:
    def make_read_only(place: Path) -> None:
        for folder, _, files in os.walk(place, topdown=False):
            for name in files:
                Path(folder, name).chmod(0o444)
            Path(folder).chmod(0o555)

    if os.geteuid() == 0:
        # Nothing is read-only for root.
        tmp_path.chmod(0o777)
        for above in (tmp_path, *tmp_path.parents[:-2]):
            above.chmod(above.stat().st_mode | 0o011)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(pwd.getpwnam("nobody").pw_uid)
            outside = tmp_path / "outside"
            outside.mkdir(mode=0o500)
            place = artifact(tmp_path / "place")
            (place / "payload" / "link").symlink_to(outside)
            make_read_only(place)
            erase(place)
            assert not place.exists()
            assert outside.stat().st_mode & 0o777 == 0o500
            sealed = artifact(tmp_path / "sealed")
            make_read_only(sealed)
            assert move_aside(sealed, tmp_path / "aside")
            assert not move_aside(sealed, tmp_path / "again")
            erase(tmp_path / "aside")
            status = 0 if not (tmp_path / "aside").exists() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_old_one_is_restored_only_over_its_own_remains(tmp_path: Path) -> None:
    old, place = artifact(tmp_path / "old"), tmp_path / "place"
    shutil.copytree(old, place)
    assert not replacing.recover(old, place)
    (place / "payload" / "aotc.json").unlink()
    (place / "payload" / "mine").write_text("of somebody else")
    assert not replacing.recover(old, place)
    assert (place / "payload" / "mine").exists()
    (place / "payload" / "mine").unlink()
    assert replacing.recover(old, place)
    assert texts(place) == {"old"}
