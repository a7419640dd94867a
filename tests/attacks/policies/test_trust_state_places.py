"""A trust state that cannot be kept, is damaged, or is locked by another process."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lock_holding import held_by_another
from policy_host import loaded
from policy_setting import Setting, ago
from refusals import refusal
from repository import ROOT

from aotc.base.files import locks
from aotc.trust.gate import verify
from aotc.trust.policy.host_trust import resolve
from aotc.trust.policy.state import user_state

TOOLCHAIN = ROOT / "toolchain"
NOBODY = 65534


@pytest.fixture
def host(host: Setting) -> Setting:
    host.write()
    return host


# A damaged state is not a new one.


def _link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "gone.json")


def _folder_that_leads_nowhere(path: Path) -> None:
    path.parent.rmdir()
    path.parent.symlink_to(path.parent.parent / "gone")


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    "damage",
    [
        _text("{}"),
        _text(""),
        _text("null"),
        _text('{"latest":null,"policies":{},"artifacts":{}}'),
        _text('{"schema":"aotc.trust-state/2"}'),
        _link_to_nothing,
        _folder_that_leads_nowhere,
        os.mkfifo,
        Path.mkdir,
    ],
    ids=["empty record", "empty", "null", "no schema", "newer", "link", "folder", "pipe", "dir"],
)
def test_a_damaged_state_is_not_a_new_one(
    damage: Callable[[Path], object], host: Setting, request: pytest.FixtureRequest
) -> None:
    place = user_state().path
    place.parent.mkdir(parents=True)
    damage(place)
    code = "AOTC-I046" if "newer" in request.node.callspec.id else "AOTC-G035"
    assert refusal(host.verify).code == code
    assert refusal(lambda: resolve(host.path, remember=False)).code == code
    unsafe = refusal(lambda: verify(host.artifact, trust=host.path, unsafe_no_trust_state=True))
    assert unsafe.code == code


def test_a_state_behind_a_link_stays_there(host: Setting) -> None:
    """A file in place of the link would no longer use the state on the volume."""
    place = user_state().path
    volume = host.folder / "volume"
    volume.mkdir()
    assert host.verify().authentic
    place.rename(volume / "state.json")
    place.symlink_to(volume / "state.json")
    host.policy["sequence"] = 5
    host.write()
    assert host.verify().authentic
    assert place.is_symlink()
    assert (
        json.loads((volume / "state.json").read_bytes())["policies"]["unsigned:prod"]["sequence"]
        == 5
    )


# The clock.


def test_the_latest_time_changes_only_with_what_was_accepted(host: Setting) -> None:
    host.require("approval", "ops")
    host.write()
    assert host.codes("prod") == ["AOTC-G025"]
    assert loaded(host, channel="prod") == "AOTC-G025"
    seen = user_state().read()
    assert (seen.latest, set(seen.policies)) == (None, {"unsigned:prod"})
    host.approve("ops")
    assert host.codes("prod") == []
    latest = user_state().read().latest
    assert latest is not None
    assert ago(minutes=5) < latest


# Folders.


@pytest.mark.parametrize("umask", [0o000, 0o777, 0o022])
def test_folders_of_the_state_are_this_user_s_alone(umask: int, host: Setting) -> None:
    before = os.umask(umask)
    try:
        assert host.verify().authentic
    finally:
        os.umask(before)
    place = user_state().path
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (place.parent.parent, place.parent)]
    assert modes == [0o700, 0o700]
    assert stat.S_IMODE(place.with_name(f"{place.name}.lock").stat().st_mode) & 0o077 == 0


# Locks.


def test_the_process_that_holds_the_lock_of_the_state_is_named(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.verify().authentic
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.05)
    lock = user_state().path.with_name("trust-state.json.lock")
    with held_by_another(lock) as process:
        refused = refusal(host.verify)
        assert (refused.code, refused.where) == ("AOTC-G041", str(lock))
        assert f"process {process.pid} " in refused.found
        # Reading needs no lock.
        assert verify(host.artifact, trust=resolve(host.path, remember=False)).authentic
    assert host.verify().authentic


# Read-only files.


def read_only(folder: Path) -> list[str]:
    """The prefix of a command that sees `folder` read-only; skips if the system forbids it."""
    show = f'mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec "$@"'
    for unshare in (["unshare", "-m"], ["unshare", "-mr"]):
        words = [*unshare, "sh", "-c", show, "sh"]
        if shutil.which("unshare"):
            tried = subprocess.run([*words, "touch", folder / "x"], capture_output=True)
            if b"ead-only" in tried.stderr:
                return words
    pytest.skip("no mount namespace can be made here, to make a folder read-only")


def as_nobody() -> list[str]:
    """The prefix of a command that runs as a user who may write no file of root."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root, with setpriv, can start a process as another user")
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture(params=["read-only mount", "other user"])
def container(
    request: pytest.FixtureRequest, host: Setting
) -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that runs a command with a home that cannot be written; returns the document."""
    home = host.folder / "home"
    home.mkdir()
    prefix = read_only(home) if request.param == "read-only mount" else as_nobody()
    environment = {
        **os.environ,
        "PYTHONPATH": str(TOOLCHAIN),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(home),
        "XDG_STATE_HOME": "",
        "XDG_CONFIG_HOME": str(home / "config"),
    }

    def run(*words: str | Path, status: int, **more: str) -> dict[str, Any]:
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "aotc.cli.main", *map(str, words), "--json"],
            env={**environment, **more},
            cwd=host.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    # Folders of tests are closed to other users, who must be able to read this one.
    closed = [folder for folder in host.folder.parents if folder.stat().st_mode & 0o011 != 0o011]
    modes = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in (host.folder, *closed)}
    try:
        for folder, mode in modes.items():
            folder.chmod(mode | 0o055)
        yield run
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)


def test_where_no_state_can_be_kept_the_ways_out_are_named(
    container: Callable[..., dict[str, Any]], host: Setting
) -> None:
    under = ("verify", host.artifact, "--trust", host.path)
    (refused,) = container(*under, status=3)["errors"]
    assert refused["code"] == "AOTC-G035"
    assert refused["what"] == "the trust state cannot be written"
    assert str(host.folder / "home") in refused["where"]
    assert "XDG_STATE_HOME" in refused["fix"]
    assert "--unsafe-no-trust-state" in refused["fix"]
    assert "Restore" not in refused["fix"]
    (check,) = (
        row for row in container("doctor", status=1)["checks"] if row["name"] == "trust state"
    )
    assert check["status"] == "failed"
    assert "cannot be written" in check["found"]
    found = container(*under, "--unsafe-no-trust-state", status=0)
    assert found["authentic"] is True
    codes = [finding["code"] for finding in found["findings"]]
    assert "AOTC-G045" in codes
    # The state is kept in a given folder.
    volume = host.folder / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    given = {"XDG_STATE_HOME": str(volume)}
    assert container(*under, status=0, **given)["authentic"] is True
    assert (volume / "aotc" / "trust-state.json").is_file()


def test_without_remembering_what_was_seen_is_still_compared(host: Setting) -> None:
    host.policy["sequence"] = 7
    host.write()
    assert host.verify().authentic
    before = user_state().path.read_bytes()
    host.policy["sequence"] = 6
    host.write()
    asked = {"trust": host.path, "unsafe_no_trust_state": True}
    assert refusal(lambda: verify(host.artifact, **asked)).code == "AOTC-G022"  # type: ignore[arg-type]
    host.policy["sequence"] = 8
    host.write()
    report = verify(host.artifact, trust=host.path, unsafe_no_trust_state=True)
    assert report.authentic
    (unremembered,) = (finding for finding in report.findings if finding.code == "AOTC-G045")
    assert unremembered.where == str(user_state().path)
    again = loaded(host, str(host.path), unsafe_no_trust_state=True)  # type: ignore[arg-type]
    assert not again.startswith("AOTC-")
    assert user_state().path.read_bytes() == before
    # Trust resolved with remembering is not remembered if the call says so.
    trust = resolve(host.path)
    before = user_state().path.read_bytes()
    assert verify(host.artifact, trust=trust, unsafe_no_trust_state=True).authentic
    assert user_state().path.read_bytes() == before
