"""A home of another user, as when root keeps HOME: nothing there is used or written.

Otherwise its owner could make root write through a link, or trust their key.  Folders that aotc
makes in a home belong to its user alone, whatever the umask is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.host import plugin_libraries
from aotc.host.plugin_libraries import libraries_digest
from aotc.session.worker_pool import keep_log
from aotc.trust.development_key import default_trust, development_key
from aotc.trust.policy.state import SeenPolicy, state_to_compare, user_state

STRANGER = 12345

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="needs root on Linux, to give folders to other users",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    return made


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    yield path
    assert path.read_bytes() == b"secret"


def give(home: Path) -> None:
    """Give all of it to the stranger."""
    for path in (home, *home.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def test_a_development_key_of_another_user_is_not_used(
    home: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    development_key()
    config = home / ".config" / "aotc"
    assert len(default_trust()) == 1
    (config / "development.pub").unlink()
    (config / "development.pub").symlink_to(secret)
    give(home)
    with pytest.raises(AotcError) as caught:
        development_key()
    assert (caught.value.code, caught.value.where) == ("AOTC-I026", str(config))
    assert "--key" in caught.value.fix
    assert default_trust() == ()
    capsys.readouterr()
    main(["doctor"])
    assert "key belongs to another user" in " ".join(capsys.readouterr().out.split())


def test_a_link_of_another_user_to_a_folder_of_the_caller(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (home / ".config").mkdir()
    (home / ".config" / "aotc").symlink_to(own)
    give(home)
    with pytest.raises(AotcError, match="AOTC-I026"):
        development_key()
    assert list(own.iterdir()) == []


def test_digests_of_libraries_are_not_kept_in_another_users_home(home: Path, secret: Path) -> None:
    library = home / "lib.so"
    library.write_bytes(b"library")
    place = home / ".cache" / "aotc" / "library-digests.json"
    digest = libraries_digest([library])
    known = json.loads(place.read_bytes())
    known[str(library)][-1] = "0" * 64
    kept = place.with_name("kept")
    kept.write_text(json.dumps(known))
    for target in (secret, kept):
        place.unlink()
        place.symlink_to(target)
        give(home)
        # A link of the stranger to root's own earlier file is not followed either.
        os.chown(kept, 0, 0)
        plugin_libraries._combined_digest.cache_clear()
        assert libraries_digest([library]) == digest


def test_logs_are_not_kept_in_another_users_home(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "step" / "log.txt"
    log.parent.mkdir()
    log.write_text("crashed\n")
    assert keep_log(log)
    logs = home / ".local" / "state" / "aotc" / "logs"
    theirs = tmp_path / "logs"
    logs.rename(theirs)
    for number in range(30):
        (theirs / f"{number}.log").touch()
    logs.symlink_to(theirs)
    give(home)
    assert keep_log(log) == ""
    assert len(list(theirs.iterdir())) == 31


def test_a_trust_state_is_not_kept_in_another_users_home(home: Path, secret: Path) -> None:
    """Through a link there, root once made a lock file next to any file, such as passwd.lock."""
    seen = SeenPolicy(sequence=1, sha256="0" * 64)
    now = datetime.now(UTC)
    user_state().note_policy("plant", seen, now, exact=True)
    folder = home / ".local" / "state" / "aotc"
    given = folder / "given.json"
    (folder / "trust-state.json").rename(given)
    for target in (given, secret):
        (folder / "trust-state.json").unlink(missing_ok=True)
        (folder / "trust-state.json").symlink_to(target)
        give(home)
        with pytest.raises(AotcError, match="AOTC-G035") as caught:
            user_state().note_policy("plant", seen, now, exact=True)
        assert "XDG_STATE_HOME" in caught.value.fix
        with pytest.raises(AotcError, match="AOTC-G035"):
            user_state().require_writable()
        assert not target.with_name(f"{target.name}.lock").exists()
    # A given state is read to compare with.
    (folder / "trust-state.json").unlink()
    given.rename(folder / "trust-state.json")
    given_state = state_to_compare()
    assert given_state is not None
    assert given_state.read().policies == {"plant": seen}


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_what_is_made_in_a_home_belongs_to_its_user_alone(
    home: Path, mask: int, tmp_path: Path
) -> None:
    """If others may write a parent folder, they can put another key or an older state there."""
    library = tmp_path / "lib.so"
    library.write_bytes(os.urandom(16))
    log = tmp_path / "log.txt"
    log.write_text("crashed\n")
    before = os.umask(mask)
    try:
        development_key()
        libraries_digest([library])
        assert keep_log(log)
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(home)): path.stat().st_mode & 0o777
        for path in home.rglob("*")
        if path.is_dir()
    }
    assert {".config/aotc", ".cache/aotc", ".local/state/aotc"} <= modes.keys()
    assert set(modes.values()) == {0o700}
