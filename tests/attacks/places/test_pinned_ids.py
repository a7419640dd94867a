"""`sha256-<id>` names an artifact in a store, never a folder of that name elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact

import aotc
from aotc.base.errors import AotcError
from aotc.cli.main import main
from aotc.runtime.store.installing import install
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private, load_public


class Scene:
    """A store with an artifact; another signed one is in the working directory under its name."""

    def __init__(self, folder: Path) -> None:
        private, self.key = generate(folder / "a.pem")
        signer = load_private(private)
        self.store = folder / "store"
        self.good = build_artifact(folder / "good.aotc", signer)
        other = build_artifact(folder / "other.aotc", signer, change={"name": "other"})
        report = install(self.good, load_public(self.key), store=self.store)
        self.id = report.artifact_id
        self.name = f"sha256-{self.id}"
        self.here = folder / "here"
        shutil.copytree(other, self.here / self.name)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path)
    monkeypatch.chdir(made.here)
    monkeypatch.setenv("AOTC_STORE", str(made.store))
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    return made


COMMANDS = ("verify", "inspect", "run", "bench", "install")


def words_for(command: str, artifact: str, scene: Scene) -> list[str]:
    more = {"inspect": [], "bench": ["--runs", "1"], "install": ["--store", "../copy"]}
    key = [] if command == "inspect" else ["--key", str(scene.key)]
    return [command, artifact, *key, *more.get(command, []), "--json"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_that_name_is_not_taken(
    command: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words_for(command, scene.name, scene)) == 0
    answer = capsys.readouterr().out
    assert scene.id in answer.replace(f'"{scene.name}"', "")
    assert '"other"' not in answer


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("spelling", ["./{}", "{}/", "../here/{}"])
def test_a_path_names_the_folder(
    command: str, spelling: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words_for(command, spelling.format(scene.name), scene)) == 0
    said = capsys.readouterr().out
    answer: dict[str, Any] = json.loads(said)
    if command == "inspect":
        assert '"name": "other"' in said
        return
    found = answer.get("artifact_id") or answer["load"]["artifact_id"]
    assert found != scene.id


@pytest.mark.parametrize("command", COMMANDS)
def test_an_id_that_is_in_no_store_is_refused(
    command: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"sha256-{'0' * 64}"
    shutil.copytree(scene.good, scene.here / name)
    assert main(words_for(command, name, scene)) == 3
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["code"], error["where"]) == ("AOTC-I001", name)
    assert str(scene.store) in error["found"]
    assert f"./{name}" in error["fix"]


@pytest.mark.parametrize("command", ["sign", "attest", "pack"])
def test_commands_that_change_a_folder_take_no_id(
    command: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry of a store may not be changed, and the folder of that name is not meant."""
    more = ["--qualify"] if command == "attest" else []
    before = sorted(scene.here.rglob("*"))
    assert main([command, scene.name, *more, "--json"]) == 3
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "AOTC-I001"
    assert f"./{scene.name}" in error["fix"]
    assert sorted(scene.here.rglob("*")) == before


def test_the_library_takes_the_same_words(scene: Scene) -> None:
    for word in (scene.name, Path(scene.name)):
        with aotc.load(word, key=scene.key) as model:
            assert (model.report.artifact_id, model.manifest.name) == (scene.id, "linear")
        report = aotc.verify(word, key=scene.key)
        assert (report.artifact_id, report.authentic) == (scene.id, True)
    with aotc.load(f"./{scene.name}", key=scene.key) as model:
        assert model.manifest.name == "other"
    assert aotc.verify(Path.cwd() / scene.name, key=scene.key).artifact_id != scene.id
    with pytest.raises(AotcError) as caught:
        aotc.load(scene.name, key=scene.key, store=scene.here / "none")
    assert (caught.value.code, caught.value.where) == ("AOTC-I001", scene.name)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_entry_that_holds_another_artifact_is_refused(
    command: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who may write the store could rename entries; each is compared with its name."""
    entry = scene.store / scene.name
    entry.rename(scene.store / "away")
    shutil.copytree(scene.here / scene.name, entry)
    status = main(words_for(command, scene.name, scene))
    assert status in (1, 3)
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "AOTC-R006"
    assert error["expected"] == scene.id


def test_a_store_as_the_working_directory(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the store itself, the entries are named by their ids and cannot be confused."""
    monkeypatch.chdir(scene.store)
    with aotc.load(scene.name, key=scene.key, store=".") as model:
        assert model.report.artifact_id == scene.id
    assert aotc.verify(scene.name, key=scene.key).artifact_id == scene.id
