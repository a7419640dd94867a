"""Stores that the loading user cannot write: verified at install, not hashed again, or refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from loading_user import NOBODY, attempt

from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.runtime.loading import load
from aotc.runtime.store import installing
from aotc.spec.command_reports import InstallReport
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_public

OTHER = 4242
TOOLCHAIN = Path(installing.__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="needs root on Linux, to install as one user and load as another",
)


class Scene:
    """An artifact that all may read, and a store of root in a folder of root."""

    def __init__(self, folder: Path, digits: BuiltArtifact) -> None:
        self.folder = folder
        self.artifact = folder / "digits.aotc"
        self.key = folder / "release.pub"
        self.root = folder / "var" / "store"
        shutil.copytree(digits.path, self.artifact)
        shutil.copy(digits.public_key, self.key)
        self.own = folder / "own"
        self.own.mkdir()
        os.chown(self.own, NOBODY, NOBODY)

    def install(self) -> InstallReport:
        """Install the artifact as root."""
        return installing.install(self.artifact, load_public(self.key), store=self.root)

    def loads(self, *load_requests: dict[str, Any]) -> list[dict[str, Any]]:
        """Load as the user `nobody`; the result of each load."""
        request = {
            "key": str(self.key),
            "warm": str(self.artifact),
            "warm_store": str(self.folder / "warm"),
            "loads": [{"path": str(self.artifact), **load} for load in load_requests],
        }
        program = Path(__file__).with_name("loading_user.py")
        done = subprocess.run(
            [sys.executable, str(program), json.dumps(request)],
            env={**os.environ, "HOME": "/nonexistent", "PYTHONPATH": str(TOOLCHAIN)},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    @property
    def stated(self) -> dict[str, Any]:
        """A load with the store stated as system-wide, and another store of the user `nobody`."""
        own = {"AOTC_STORE": str(self.own / "store")}
        return {"environment": {"AOTC_SYSTEM_STORE": str(self.root), **own}}

    @property
    def named(self) -> dict[str, Any]:
        """A load that names the store, which may then belong to anybody."""
        return {"store": str(self.root)}


@pytest.fixture
def scene(digits: BuiltArtifact) -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="aotc-system-store-"))
    folder.chmod(0o755)
    yield Scene(folder, digits)
    for place in folder.rglob("*"):
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o700)
    shutil.rmtree(folder)


def truth(scene: Scene) -> str:
    found = attempt(
        {"path": str(scene.artifact), "store": str(scene.folder / "warm")},
        {"key": str(scene.key)},
    )
    return str(found["answer"])


def test_what_root_installed_is_not_hashed_again(scene: Scene) -> None:
    report = scene.install()
    assert report.installed
    entry = Path(report.folder)
    by_entry = {**scene.stated, "path": str(entry)}
    by_id = {**scene.stated, "path": entry.name}
    for found in scene.loads(scene.stated, scene.named, by_entry, by_id):
        assert found == {
            "hashed": False,
            "from_store": True,
            "payload": str(entry / "payload"),
            "answer": truth(scene),
        }
    assert list(scene.own.iterdir()) == []
    for path in (scene.root.parent, scene.root):
        assert path.stat().st_mode & 0o777 == 0o755
    for path in (entry, *entry.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)


def test_what_the_system_wide_store_has_not_is_copied_into_the_users(scene: Scene) -> None:
    scene.root.mkdir(parents=True)
    first, second = scene.loads(scene.stated, scene.stated)
    assert (first["hashed"], first["from_store"]) == (True, False)
    assert (second["hashed"], second["from_store"]) == (True, True)
    assert first["payload"] == second["payload"]
    assert Path(first["payload"]).is_relative_to(scene.own)
    assert {first["answer"], second["answer"]} == {truth(scene)}


def test_a_store_of_another_user_than_root_has_to_be_named(scene: Scene) -> None:
    scene.install()
    for path in (scene.root, *scene.root.rglob("*")):
        os.chown(path, OTHER, OTHER)
    refused = scene.stated
    named = scene.stated
    named["environment"]["AOTC_SYSTEM_STORE_OWNER"] = str(OTHER)
    unknown = scene.stated
    unknown["environment"]["AOTC_SYSTEM_STORE_OWNER"] = "no such user"
    first, second, third = scene.loads(refused, named, unknown)
    assert first["code"] == "AOTC-R016"
    assert second["hashed"] is False
    assert (third["code"], third["where"]) == ("AOTC-R016", "AOTC_SYSTEM_STORE_OWNER")


def test_the_user_that_owns_it_checks_the_digests(scene: Scene) -> None:
    scene.install()
    for path in (scene.root, *scene.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    own = scene.stated
    own["environment"]["AOTC_SYSTEM_STORE_OWNER"] = str(NOBODY)
    (found,) = scene.loads(own)
    assert (found["hashed"], found["from_store"]) == (True, True)
    assert Path(found["payload"]).is_relative_to(scene.root)


def test_root_checks_the_digests_unless_it_trusts_the_store(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.install()
    monkeypatch.setenv("AOTC_SYSTEM_STORE", str(scene.root))
    for trusts in (False, True):
        with load(scene.artifact, key=scene.key, trust_store=trusts) as model:
            assert model.report.hashed is not trusts
            assert model.payload.is_relative_to(scene.root)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_the_commands_trust_a_store_if_asked_to(
    command: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene.install()
    monkeypatch.setenv("AOTC_SYSTEM_STORE", str(scene.root))
    words = [command, str(scene.artifact), "--key", str(scene.key), "--json"]
    for more in ([], ["--trust-store"]):
        assert main([*words, *more]) == 0
        assert json.loads(capsys.readouterr().out)["load"]["hashed"] is not bool(more)


def test_a_store_that_only_its_owner_may_search_is_always_hashed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content of such an entry may not have reached the disk before a power failure."""
    scene.install()
    scene.root.chmod(0o700)
    monkeypatch.setenv("AOTC_SYSTEM_STORE", str(scene.root))
    with load(scene.artifact, key=scene.key, trust_store=True) as model:
        assert model.report.hashed


def group_may_write_the_store(scene: Scene) -> Path:
    scene.root.chmod(0o775)
    return scene.root


def others_may_write_above(scene: Scene) -> Path:
    scene.root.parent.chmod(0o777)
    return scene.root.parent


def all_may_write_a_sticky_store(scene: Scene) -> Path:
    scene.root.chmod(0o1777)
    return scene.root


def somebody_owns_what_is_above(scene: Scene) -> Path:
    os.chown(scene.root.parent, OTHER, OTHER)
    return scene.root.parent


def the_loaders_link_is_above(scene: Scene) -> Path:
    real = scene.root.parent.rename(scene.root.parent.with_suffix(".real"))
    scene.root.parent.symlink_to(real)
    os.chown(scene.root.parent, NOBODY, NOBODY, follow_symlinks=False)
    return scene.root.parent


def weights_may_be_written(scene: Scene) -> Path:
    path = next(scene.root.glob("*/payload/model/portable/model.onnx"))
    path.chmod(0o464)
    return path


def the_loader_owns_a_file(scene: Scene) -> Path:
    path = next(scene.root.glob("*/payload/aotc.json"))
    os.chown(path, NOBODY, NOBODY)
    return path


def the_loader_owns_a_folder(scene: Scene) -> Path:
    path = next(scene.root.glob("*/attestations"))
    os.chown(path, NOBODY, NOBODY)
    return path


UNSAFE = (
    group_may_write_the_store,
    others_may_write_above,
    all_may_write_a_sticky_store,
    somebody_owns_what_is_above,
    the_loaders_link_is_above,
    weights_may_be_written,
    the_loader_owns_a_file,
    the_loader_owns_a_folder,
)


def test_a_store_that_others_may_change(scene: Scene) -> None:
    """Stated as system-wide, or only by its path, it is refused.

    Stated only by its path, it may be the loader's as well as root's; then it is hashed.
    """
    load_requests: list[dict[str, Any]] = []
    places = []
    for spoil in UNSAFE:
        scene.root = scene.folder / spoil.__name__ / "store"
        scene.install()
        places.append(str(spoil(scene)))
        load_requests += [scene.stated, scene.named]
    found = iter(scene.loads(*load_requests))
    expected = truth(scene)
    for spoil, where, stated, named in zip(UNSAFE, places, found, found, strict=True):
        assert (stated["code"], stated["where"]) == ("AOTC-R016", where)
        if "loader" in spoil.__name__:
            assert (named["hashed"], named["answer"]) == (True, expected)
        else:
            assert (named["code"], named["where"]) == ("AOTC-R016", where)


def test_a_link_of_roots_may_lead_to_it(scene: Scene) -> None:
    """A user who could change the link could change the folder that contains it."""
    scene.install()
    real = scene.root.parent.rename(scene.root.parent.with_suffix(".real"))
    scene.root.parent.symlink_to(real)
    for found in scene.loads(scene.stated, scene.named):
        assert (found["hashed"], found["answer"]) == (False, truth(scene))


def test_others_may_not_install_system_wide_what_others_may_change(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_SYSTEM_STORE", str(scene.root))
    installing.install(scene.artifact, load_public(scene.key), system=True)
    scene.root.parent.chmod(0o777)
    with pytest.raises(AotcError) as caught:
        installing.install(scene.artifact, load_public(scene.key), system=True)
    assert (caught.value.code, caught.value.where) == ("AOTC-R016", str(scene.root.parent))


def test_whom_the_loader_trusts_counts_all_the_same(scene: Scene) -> None:
    scene.install()
    stranger = generate(scene.folder / "stranger.pem")[1]
    unsigned = scene.folder / "unsigned.aotc"
    shutil.copytree(scene.artifact, unsigned)
    for bundle in (unsigned / "attestations").iterdir():
        bundle.unlink()
    other, without = scene.loads(
        {**scene.stated, "key": str(stranger)}, {**scene.stated, "path": str(unsigned)}
    )
    assert other["code"] == "AOTC-G002"
    assert without["code"] == "AOTC-G001"


def shorten(entry: Path) -> None:
    path = entry / "payload" / "model" / "portable" / "model.onnx"
    os.truncate(path, path.stat().st_size - 1)


def change_the_manifest(entry: Path) -> None:
    path = entry / "payload" / "aotc.json"
    path.write_bytes(path.read_bytes().replace(b'"name"', b'"nane"', 1))


def add_a_file(entry: Path) -> None:
    (entry / "payload" / "more").write_bytes(b"")


def remove_a_file(entry: Path) -> None:
    next(entry.glob("payload/shared_assets/*/*")).unlink()


def test_a_damaged_copy_is_refused_and_installed_again(scene: Scene) -> None:
    """Even root's own mistakes are found, as far as possible without hashing."""
    damages = (shorten, change_the_manifest, add_a_file, remove_a_file)
    load_requests: list[dict[str, Any]] = []
    entries = []
    for damage in damages:
        scene.root = scene.folder / damage.__name__
        entries.append(Path(scene.install().folder))
        damage(entries[-1])
        load_requests += [scene.stated, scene.named]
    found = scene.loads(*load_requests)
    assert [refusal["code"] for refusal in found] == ["AOTC-R006"] * len(load_requests)
    assert [refusal["where"] for refusal in found[::2]] == [str(entry) for entry in entries]
    for entry in entries:
        scene.root = entry.parent
        assert scene.install().installed
        assert not scene.install().installed
    for result in scene.loads(*load_requests):
        assert (result["hashed"], result["answer"]) == (False, truth(scene))


def test_no_swap_of_the_source_reaches_what_is_loaded(scene: Scene) -> None:
    """Once root has installed, the loader's own files and arguments do not matter."""
    scene.install()
    expected = truth(scene)
    for path in (scene.artifact / "payload").rglob("*"):
        if path.is_file() and path.name != "aotc.json":
            path.write_bytes(b"swapped")
    (found,) = scene.loads(scene.stated)
    assert (found["hashed"], found["answer"]) == (False, expected)
