"""`--force` replaces what aotc wrote, never a device, a pipe, a link or another folder."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from repository import ROOT

from aotc.cli.main import main
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private
from aotc.trust.packing import pack

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
KINDS = ("device", "pipe", "link", "dangling link", "folder", "foreign folder")
WORDS = {
    "build": ("build", "digits.onnx", "--force", "-o", "PLACE"),
    "pack": ("pack", "a.aotc", "--force", "-o", "PLACE"),
    "unpack": ("unpack", "a.zip", "--force", "-o", "PLACE"),
    "keygen": ("keygen", "-o", "PLACE"),
    "trust init": (
        *("trust", "init", "--name", "shop", "--signer", "a=key.pub"),
        *("--force", "-o", "PLACE"),
    ),
    "sign": ("sign", "a.aotc", "--key", "key.pem", "--force"),
}


def make(kind: str, place: Path) -> None:
    if kind == "device":
        try:
            # Such as /dev/null, which `--force` of root must not turn into a file.
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("a device cannot be made here: not as this user")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
        (place / "mine").write_text("mine")
    elif kind == "foreign folder":
        # The file that makes a folder an artifact, and one that no artifact has.
        (place / "payload").mkdir(parents=True)
        (place / "payload" / "aotc.json").write_text("{}")
        (place / "mine").write_text("mine")
    else:
        place.symlink_to("target")
        if kind == "link":
            place.with_name("target").write_text("mine")


def seen(place: Path) -> tuple[int, int, int, str]:
    """The state of a path: its own inode, and the entries of a folder or the target of a link."""
    found = place.lstat()
    inside = str(sorted(place.iterdir())) if stat.S_ISDIR(found.st_mode) else ""
    leads = str(place.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    return found.st_ino, found.st_mode, found.st_rdev, inside + leads


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    private, _ = generate(folder / "key.pem")
    build_artifact(folder / "a.aotc", load_private(private))
    pack(folder / "a.aotc", folder / "a.zip")
    shutil.copyfile(MODEL, folder / "digits.onnx")
    return folder


@pytest.fixture
def here(
    start: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    folder = tmp_path_factory.mktemp("here") / "work"
    shutil.copytree(start, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORDS)
def test_what_aotc_did_not_write_stays(
    name: str, kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = here / "there"
    if name == "sign":
        assert main(["sign", "a.aotc", "--key", "key.pem", "--force", "--json"]) == 0
        capsys.readouterr()
        (place,) = (here / "a.aotc" / "attestations").glob("oms-*")
        place.unlink()
    make(kind, place)
    before, names = seen(place), {path.name for path in here.iterdir()}
    words = [place.name if word == "PLACE" else word for word in WORDS[name]]
    status = main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert seen(place) == before
    if name == "trust init" and "link" in kind:
        # The target of a link is written, and the link stays.
        assert status == 0
        assert "shop" in (here / "target").read_text()
        return
    # A folder cannot be a key file, and an artifact may only hold regular files.
    codes = {("keygen", name): "AOTC-I027" for name in KINDS if "folder" in name}
    assert found["errors"][0]["code"] in (codes.get((name, kind), "AOTC-I017"), "AOTC-G008"), found
    assert {path.name for path in here.iterdir()} == names
    if kind == "link":
        assert place.with_name("target").read_text() == "mine"


@pytest.mark.parametrize("place", ["../a.aotc", "../../work/a.aotc", "../../here/a.aotc"])
@pytest.mark.parametrize("name", ["build", "unpack"])
def test_the_working_directory_stays(
    name: str,
    place: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here.with_name("here").symlink_to("work")
    before = seen(here / "a.aotc")
    monkeypatch.chdir(here / "a.aotc")
    source = {"build": MODEL, "unpack": here / "a.zip"}[name]
    status = main([name, str(source), "--force", "-o", place, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["errors"][0]["code"]) == (3, "AOTC-I017"), found
    assert "the current folder" in found["errors"][0]["what"]
    assert seen(here / "a.aotc") == before
    assert Path.cwd() == here / "a.aotc"
