"""A store is not used if another user owns it or may write it or one of its parent folders.

A process of that user swaps its content as fast as it can.  No file of root changes its mode, and
no load answers with what was not signed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from artifact_builder import FEATURES, build_artifact

from aotc.base.errors import AotcError
from aotc.base.files.ownership import Unsafe, open_folder
from aotc.cli.main import main
from aotc.pipeline.cache import BuildCache
from aotc.runtime.loading import load
from aotc.runtime.store import pruning
from aotc.runtime.store.installing import install
from aotc.runtime.store.publication import Draft
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private, load_public

STRANGER = 12345
X = np.arange(FEATURES, dtype=np.float32).reshape(1, FEATURES)

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="needs root on Linux, to give folders to other users",
)


class Scene:
    """An artifact, its key, a secret of root, and a folder that all users may enter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        private, self.key = generate(folder / "a.pem")
        self.artifact = build_artifact(folder / "good.aotc", load_private(private))
        self.secret = folder / "secret"
        self.secret.write_bytes(b"secret")
        self.secret.chmod(0o600)

    def store_of(self, user: int, name: str = "store") -> Path:
        root = self.folder / name
        root.mkdir(mode=0o755)
        os.chown(root, user, user)
        return root

    def install(self, root: Path) -> Path:
        return Path(install(self.artifact, load_public(self.key), store=root).folder)

    def refusal(self, work: Callable[[], object], *others: str) -> AotcError:
        with pytest.raises(AotcError) as caught:
            work()
        assert caught.value.code in ("AOTC-R016", *others), caught.value
        assert caught.value.fix or caught.value.code in others
        return caught.value


@pytest.fixture
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="aotc-foreign-"))
    folder.chmod(0o755)
    yield Scene(folder)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


SWAPPER = """
import os, sys, shutil
root, secret, evil = sys.argv[1:]
os.setgroups([]); os.setresgid(12345, 12345, 12345); os.setresuid(12345, 12345, 12345)
print("ready", flush=True)
number = 0
while True:
    for name in os.listdir(root):
        place = os.path.join(root, name)
        number += 1
        away = os.path.join(root, f"away-{number}")
        if name.startswith(".new-"):
            # What is being installed: the folder is moved away, and one of the stranger's is there.
            try:
                os.rename(place, away)
                os.makedirs(os.path.join(place, "payload"))
                os.symlink(secret, os.path.join(place, "payload", "aotc.json"))
            except OSError:
                pass
        elif name.startswith("sha256-"):
            try:
                shutil.copytree(evil, away)
                os.rename(place, away + "-good")
                os.rename(away, place)
                os.rename(place, away)
                os.rename(away + "-good", place)
            except OSError:
                pass
            shutil.rmtree(away, ignore_errors=True)
"""


@contextmanager
def swapping(scene: Scene, root: Path, evil: Path) -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(root), str(scene.secret), str(evil)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    try:
        yield
        assert child.poll() is None, "the swaps came to an end"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_an_owner_who_swaps_during_the_install(scene: Scene) -> None:
    """No install begins, and the mode of root's secret never changes."""
    root = scene.store_of(STRANGER)
    with swapping(scene, root, scene.artifact):
        for _ in range(20):
            error = scene.refusal(lambda: scene.install(root))
            assert (error.where, error.found) == (str(root), f"user {STRANGER}")
            assert list(root.iterdir()) == []
    assert scene.secret.stat().st_mode & 0o7777 == 0o600


def test_an_owner_who_swaps_during_a_load(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if root installed into it while it belonged to root."""
    root = scene.store_of(0)
    entry = scene.install(root)
    evil = scene.folder / "evil"
    shutil.copytree(entry, evil)
    weights = next(evil.glob("payload/shared_assets/*/weights.bin"))
    weights.chmod(0o644)
    weights.write_bytes(bytes(weights.stat().st_size))
    for path in (root, *root.rglob("*"), evil, *evil.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    monkeypatch.setenv("AOTC_STORE", str(root))
    with swapping(scene, root, evil):
        for store in (root, None) * 5:
            scene.refusal(lambda store=store: load(scene.artifact, key=scene.key, store=store))
            # Between two renames there is no entry of that name.
            scene.refusal(
                lambda store=store: load(entry.name, key=scene.key, store=store), "AOTC-I001"
            )


@pytest.mark.parametrize("what", ["link", "hard link", "fifo", "file"])
def test_sealing_follows_nothing_that_was_put_there(what: str, scene: Scene) -> None:
    """Sealing itself refuses, not only the earlier check of the store."""
    root = scene.store_of(0)
    draft = Draft(root)
    draft.open("payload/x").close()
    place = draft.folder / "payload" / "x"
    place.unlink()
    if what == "link":
        place.symlink_to(scene.secret)
    elif what == "hard link":
        os.link(scene.secret, place)
    elif what == "fifo":
        os.mkfifo(place)
    else:
        place.write_bytes(b"")
        os.chown(place, STRANGER, STRANGER)
    for work in (draft.seal, draft.sync):
        scene.refusal(work)
    draft.discard()
    assert not draft.folder.exists()
    assert scene.secret.stat().st_mode & 0o7777 == 0o600
    assert scene.secret.read_bytes() == b"secret"


@pytest.mark.parametrize("level", ["draft", "folder"])
def test_a_folder_that_became_a_link_is_not_walked(level: str, scene: Scene) -> None:
    root, elsewhere = scene.store_of(0), scene.folder / "elsewhere"
    (elsewhere / "payload").mkdir(parents=True)
    (elsewhere / "payload" / "x").write_bytes(b"")
    draft = Draft(root)
    draft.open("payload/x").close()
    place = draft.folder if level == "draft" else draft.folder / "payload"
    place.rename(root / "away")
    place.symlink_to(elsewhere if level == "draft" else elsewhere / "payload")
    if level == "draft":
        draft.seal()
        draft.sync()
        draft.open("payload/y").close()
    else:
        for work in (draft.seal, draft.sync):
            with pytest.raises((AotcError, OSError)):
                work()
        with pytest.raises(AotcError):
            draft.open("payload/y")
    draft.discard()
    assert (elsewhere / "payload" / "x").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (elsewhere / "payload").iterdir()] == ["x"]


def test_every_way_to_a_store_checks_its_owner(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = scene.store_of(0)
    entry = scene.install(root)
    os.chown(root, STRANGER, STRANGER)
    monkeypatch.setenv("AOTC_STORE", str(root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(scene.folder / "config"))
    artifact, key = str(scene.artifact), ["--key", str(scene.key)]
    for words in (
        ["install", artifact, *key],
        ["install", artifact, *key, "--store", str(root)],
        ["run", artifact, *key, "--store", str(root)],
        ["run", artifact, *key],
        ["store", "list"],
        ["store", "prune"],
        ["store", "prune", "--store", str(root)],
        ["store", "remove", entry.name],
        ["verify", entry.name, *key],
        ["inspect", entry.name],
    ):
        assert main(words) == 3, words
        said = capsys.readouterr().err
        assert "AOTC-R016" in said
        assert "chown" in said
    assert main(["doctor"]) == 1
    assert "AOTC-R016" in "".join(capsys.readouterr().out.split())
    os.chown(root, 0, 0)
    assert main(["store", "list"]) == 0


def test_an_entry_of_another_user_in_a_store_of_ours_is_replaced(scene: Scene) -> None:
    """The other user may still have it open from the time when the store was theirs."""
    root = scene.store_of(0)
    entry = scene.install(root)
    for spoilt in ("payload/aotc.json", "payload", "."):
        os.chown(entry / spoilt, STRANGER, STRANGER)
        assert scene.install(root) == entry
        assert {path.stat().st_uid for path in (entry, *entry.rglob("*"))} == {0}
        os.chown(entry / spoilt, STRANGER, STRANGER)
        with load(entry.name, key=scene.key, store=root) as model:
            assert not model.report.from_store
        assert {path.stat().st_uid for path in (entry, *entry.rglob("*"))} == {0}
    (entry / "payload").chmod(0o777)
    with load(scene.artifact, key=scene.key, store=root) as model:
        assert not model.report.from_store
    assert pruning.prune(root, limit=0).removed == (entry.name.removeprefix("sha256-"),)


# -- parent folders
def others_write(folder: Path) -> None:
    folder.chmod(0o777)


def a_group_writes(folder: Path) -> None:
    os.chown(folder, 0, STRANGER)
    folder.chmod(0o775)


def somebody_owns(folder: Path) -> None:
    os.chown(folder, STRANGER, STRANGER)


@pytest.mark.parametrize("spoil", [others_write, a_group_writes, somebody_owns])
@pytest.mark.parametrize("made", [False, True])
def test_each_parent_folder_counts(
    spoil: Callable[[Path], None], made: bool, scene: Scene, tmp_path: Path
) -> None:
    """Those of an existing store, of a new one, and of the build cache."""
    above = scene.folder / "above"
    root = above / "below" / "store"
    (above / "below").mkdir(parents=True)
    if made:
        scene.install(root)
    spoil(above)
    error = scene.refusal(lambda: scene.install(root))
    assert error.where == str(above)
    assert str(above) in error.fix or "--store" in error.fix
    assert root.exists() == made
    (above / "below" / "cache").mkdir(mode=0o700)
    with pytest.raises(AotcError) as caught:
        BuildCache(above / "below" / "cache").entries()
    assert (caught.value.code, caught.value.where) == ("AOTC-R014", str(above))


def test_a_sticky_folder_may_lead_to_a_store_and_not_be_one(scene: Scene) -> None:
    sticky = scene.folder / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    assert scene.install(sticky / "store").is_dir()
    assert scene.refusal(lambda: scene.install(sticky)).where == str(sticky)
    # In a sticky folder, anybody may have made a folder or a link of that name.
    theirs = sticky / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    assert scene.refusal(lambda: scene.install(theirs / "store")).where == str(theirs)
    link = sticky / "link"
    link.symlink_to(scene.folder)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    error = scene.refusal(lambda: scene.install(link / "store"))
    assert (error.where, error.found) == (str(link), f"user {STRANGER}")


def test_links_that_nobody_else_may_change_are_followed(scene: Scene) -> None:
    real = scene.folder / "usr" / "home"
    real.mkdir(parents=True)
    (scene.folder / "home").symlink_to("usr/home")
    (scene.folder / "absolute").symlink_to(scene.folder / "home" / ".." / "home")
    entry = scene.install(scene.folder / "absolute" / "store")
    assert (real / "store" / entry.name).is_dir()
    # The folders that the links lead through count as well.
    (scene.folder / "usr").chmod(0o777)
    error = scene.refusal(lambda: scene.install(scene.folder / "absolute" / "store"))
    assert error.where == str(scene.folder / "usr")
    (scene.folder / "round").symlink_to("round")
    with pytest.raises(AotcError) as caught:
        scene.install(scene.folder / "round" / "store")
    assert caught.value.code == "AOTC-R007"


def private_user() -> tuple[int, int]:
    """The ids of a user of this host and of a primary group that nobody else is in."""
    import grp
    import pwd

    everybody = pwd.getpwall()
    for user in everybody:
        if user.pw_uid == 0:
            continue
        try:
            group = grp.getgrgid(user.pw_gid)
        except KeyError:
            continue
        if (
            group.gr_name == user.pw_name
            and not group.gr_mem
            and [account.pw_gid for account in everybody].count(user.pw_gid) == 1
        ):
            return user.pw_uid, user.pw_gid
    pytest.skip("no user here has a group of their own")


@contextmanager
def as_user(user: int) -> Iterator[None]:
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_private_group_of_the_caller_may_write_what_leads_there(scene: Scene) -> None:
    """As in homes made under a umask of 002; any other group or list of users may not."""
    user, group = private_user()
    home = scene.folder / "home"
    (home / ".cache").mkdir(parents=True)
    for folder in (home, home / ".cache"):
        os.chown(folder, user, group)
        folder.chmod(0o775)
    with as_user(user):
        os.close(open_folder(home / ".cache" / "aotc" / "store", (user,), make=0o700))
    assert (home / ".cache" / "aotc" / "store").stat().st_mode & 0o777 == 0o700

    def refused(place: Path) -> Unsafe:
        with as_user(user), pytest.raises(Unsafe) as caught:
            open_folder(place, (user,))
        assert caught.value.place == place if place == home / ".cache" else home
        return caught.value

    # The folder itself must be writable by its owner alone.
    assert f"chmod g-w {home / '.cache'}" in refused(home / ".cache").fix
    os.chown(home, user, STRANGER)
    assert f"chmod g-w {home}" in refused(home / ".cache" / "aotc").fix
    os.chown(home, user, group)
    # For another user, also for root, somebody else may write such a folder.
    with pytest.raises(Unsafe):
        open_folder(home / ".cache" / "aotc", (user,))


def test_a_list_of_users_is_not_a_private_group(scene: Scene) -> None:
    user, group = private_user()
    home = scene.folder / "home"
    (home / "store").mkdir(parents=True, mode=0o755)
    for folder in (home, home / "store"):
        os.chown(folder, user, group)
    # ACL_USER_OBJ rwx, ACL_USER of the stranger rwx, ACL_GROUP_OBJ r-x, ACL_MASK rwx, ACL_OTHER r-x
    rows = [(1, 7, -1), (2, 7, STRANGER), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    words = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little")
        + mode.to_bytes(2, "little")
        + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, mode, who in rows
    )
    try:
        os.setxattr(home, "system.posix_acl_access", words)
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")
    assert home.stat().st_mode & 0o777 == 0o775
    with as_user(user), pytest.raises(Unsafe) as caught:
        open_folder(home / "store", (user,))
    assert caught.value.place == home


IN_NAMESPACE = """
import os, sys
from pathlib import Path
from aotc.base.files.ownership import Unsafe, open_folder
for place in sys.argv[1:]:
    try:
        os.close(open_folder(Path(place), (os.geteuid(),)))
        print("safe")
    except Unsafe as error:
        print(error.place)
"""


def test_a_folder_of_an_owner_outside_the_container_may_lead_to_a_store(scene: Scene) -> None:
    """An owner without an id in the user namespace may own a parent folder, but not a store."""
    outside = scene.store_of(STRANGER, "outside")
    inside = outside / "store"
    inside.mkdir(mode=0o755)
    sticky = outside / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "theirs" / "store").mkdir(parents=True)
    os.chown(sticky / "theirs", STRANGER, STRANGER)
    written = scene.store_of(STRANGER, "written")
    (written / "store").mkdir()
    written.chmod(0o777)
    places = [inside, outside, sticky / "theirs" / "store", written / "store"]
    done = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            sys.executable,
            "-c",
            IN_NAMESPACE,
            *map(str, places),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    assert done.stdout.splitlines() == [
        "safe",
        str(outside),
        str(sticky / "theirs"),
        str(written),
    ]
    # Outside the namespace the same owner has an id, and is another user.
    with pytest.raises(Unsafe):
        open_folder(inside, (0,))
