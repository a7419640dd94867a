"""Locks are waited for up to a limit, and the message names their holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lock_holding import held_by_another, named
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.base.files import locks
from aotc.pipeline import cache_folder
from aotc.runtime.store import entries
from aotc.runtime.store.pruning import remove_entry

_TOOLCHAIN = ROOT / "toolchain"
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(_TOOLCHAIN)}

_PROC_LOCKS = pytest.mark.skipif(
    not Path("/proc/locks").is_file(), reason="this system does not list its locks in /proc/locks"
)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


@_PROC_LOCKS
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_who_holds_a_lock_is_named_when_the_time_is_over(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    path.mkdir() if kind == "folder" else path.touch()
    descriptor = _opened(path)
    try:
        with held_by_another(path) as process:
            with pytest.raises(AotcError, match="AOTC-G041 another process holds the") as caught:
                locks.lock(descriptor, path, seconds=0.1)
            assert caught.value.found == named(process)
        assert caught.value.where == str(path)
    finally:
        os.close(descriptor)


def test_a_lock_that_is_given_back_in_time_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.touch()
    descriptor = _opened(path)
    try:
        with held_by_another(path):
            assert not locks.try_lock(descriptor)
        locks.lock(descriptor, path, seconds=30)
    finally:
        os.close(descriptor)


def test_readers_share_a_lock_and_keep_out_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.touch()
    descriptor = _opened(path)
    try:
        with held_by_another(path, "--shared"):
            locks.lock(descriptor, path, shared=True, seconds=0)
            with pytest.raises(AotcError, match="AOTC-G041"):
                locks.lock(descriptor, path, seconds=0)
    finally:
        os.close(descriptor)


def test_a_lock_that_nobody_holds_has_no_holder(tmp_path: Path) -> None:
    descriptor = _opened(tmp_path)
    try:
        assert locks.holder(descriptor) == ""
    finally:
        os.close(descriptor)


def test_an_interruption_ends_the_waiting(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.touch()
    waits = (
        "import sys; from pathlib import Path; from aotc.base.files import locks\n"
        "locks.WAIT_SECONDS = 600.0\n"
        "path = Path(sys.argv[1]); print('waits', flush=True)\n"
        "with locks.locked(path): pass"
    )
    with (
        held_by_another(path),
        subprocess.Popen(
            [sys.executable, "-c", waits, str(path)],
            env=_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]


def test_a_file_system_without_locks_is_an_answer(tmp_path: Path) -> None:
    # A descriptor opened with O_PATH cannot be locked, like files on some network file systems.
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(AotcError, match="AOTC-G041 the file cannot be locked"):
            locks.lock(descriptor, tmp_path)
    finally:
        os.close(descriptor)


def test_a_change_leaves_no_lock_file_and_keeps_out_others(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("1")
    with locks.editing(path):
        (place,) = tmp_path.glob(".*")
        assert place.stat().st_mode & 0o777 == 0o600
        with (
            pytest.raises(AotcError, match=r"AOTC-G041 another process changes policy\.yaml"),
            locks.editing(path, seconds=0),
        ):
            pass
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_file_has_one_lock_by_whatever_links_it_is_named(tmp_path: Path) -> None:
    """Otherwise a change through one name would overwrite a change through another."""
    (tmp_path / "kept").mkdir()
    path = tmp_path / "kept" / "policy.yaml"
    path.write_text("1")
    (tmp_path / "link.yaml").symlink_to("kept/policy.yaml")
    (tmp_path / "folder").symlink_to("kept")
    for other in (tmp_path / "link.yaml", tmp_path / "folder" / "policy.yaml"):
        with (
            locks.editing(path),
            pytest.raises(AotcError, match="AOTC-G041"),
            locks.editing(other, seconds=0),
        ):
            pass
    assert sorted(tmp_path.rglob(".*")) == []
    (tmp_path / "lost").symlink_to("nowhere/policy.yaml")
    with locks.editing(tmp_path / "lost"):
        assert [path.name for path in tmp_path.glob(".*")] == [".lost.lock"]


def test_a_lock_file_that_a_killed_process_left_is_used_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    left = (
        "import os, signal, sys; from pathlib import Path\n"
        "from aotc.base.files import locks\n"
        "with locks.editing(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    words = [sys.executable, "-c", left, str(path)]
    killed = subprocess.run(words, env=_ENVIRONMENT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".policy.yaml.lock"]
    with locks.editing(path, seconds=0):
        pass
    assert not list(tmp_path.iterdir())


def test_changes_of_many_processes_come_one_after_the_other(tmp_path: Path) -> None:
    """Each process adds one to what it read: two that read at once would count as one."""
    path = tmp_path / "count"
    path.write_text("0")
    adds = (
        "import sys; from pathlib import Path; from aotc.base.files import locks\n"
        "locks.WAIT_SECONDS = 120.0\n"
        "path = Path(sys.argv[1])\n"
        "for _ in range(25):\n"
        "    with locks.editing(path):\n"
        "        path.write_text(str(int(path.read_text()) + 1))\n"
    )
    words = [sys.executable, "-c", adds, str(path)]
    processes = [subprocess.Popen(words, env=_ENVIRONMENT) for _ in range(6)]
    assert [process.wait() for process in processes] == [0] * 6
    assert path.read_text() == "150"
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_prune_of_the_cache_names_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder, "_LOCK_SECONDS", 0.05)
    (tmp_path / cache_folder.LOCK).touch(0o600)
    with (
        held_by_another(tmp_path / cache_folder.LOCK) as process,
        pytest.raises(AotcError, match="AOTC-R014 another process holds the lock") as caught,
        cache_folder.locked_for_pruning(tmp_path),
    ):
        pass
    assert f"process {process.pid} " in caught.value.found


def test_a_prune_of_the_store_names_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "EXCLUSIVE_SECONDS", 0.05)
    (tmp_path / entries.LOCK).touch(0o600)
    with (
        held_by_another(tmp_path / entries.LOCK) as process,
        pytest.raises(AotcError, match="AOTC-R007 another process works on the store") as caught,
        entries.exclusive(tmp_path),
    ):
        pass
    assert f"process {process.pid} " in caught.value.found


def test_an_entry_that_another_process_reads_is_not_removed_and_who_reads_it_is_named(
    tmp_path: Path,
) -> None:
    entry = tmp_path / f"sha256-{'0' * 64}"
    entry.mkdir()
    with (
        held_by_another(entry, "--shared") as process,
        pytest.raises(AotcError, match="AOTC-R017") as caught,
    ):
        remove_entry(tmp_path, "0" * 64)
    assert f"process {process.pid} " in caught.value.found
    assert entry.is_dir()
