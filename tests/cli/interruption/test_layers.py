"""Artifacts and caches that are baked into an image: folders of an overlay's lower layer.

They can be neither renamed nor exchanged (EXDEV), and are replaced and removed all the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import layers
import pytest
from command import TOOLCHAIN, Command, Outcome
from made_models import linear, save

KEY = ("--key", "release.pem")
_UNSHARE = ("unshare", "-m")


@pytest.fixture(scope="module")
def lower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lower layer: a model, a key, artifacts, and what a build left in the cache."""
    folder = tmp_path_factory.mktemp("layers") / "lower"
    folder.mkdir()
    save(linear(), folder / "linear.onnx")
    aotc = Command(folder)
    for words in (
        ("keygen", "-o", "release.pem"),
        ("build", "linear.onnx", "-o", "old.aotc", *KEY),
        ("build", "linear.onnx", "-o", "other.aotc", *KEY, "--dim", "batch=2"),
        ("pack", "other.aotc", "-o", "new.zip"),
    ):
        assert aotc(*words).status == 0
    return folder


@pytest.fixture(scope="module", autouse=True)
def _overlay(lower: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where no overlay can be mounted; and a folder of the lower layer must not move."""
    if not shutil.which("unshare"):
        pytest.skip("no overlay can be mounted here: there is no 'unshare'")
    place = tmp_path_factory.mktemp("mounted") / "merged"
    done = in_namespace("rename", lower, place)
    if done.returncode != 0:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.strip()}")
    assert done.stdout == "EXDEV\n"


def in_namespace(job: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_UNSHARE, sys.executable, layers.__file__, job, *map(str, words)],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )


class Image:
    """Commands over the lower layer, each with an upper one of its own."""

    def __init__(self, lower: Path, folder: Path) -> None:
        self.lower = lower
        self.folder = folder
        self.result = folder / "result"

    def __call__(self, *words: str, **more: str) -> Outcome:
        """Run a command with `--json` in the overlay, which is copied to `result` then."""
        shutil.rmtree(self.result, ignore_errors=True)
        merged = self.folder / "merged"
        prefix = [*_UNSHARE, sys.executable, layers.__file__, "run"]
        prefix += map(str, (self.lower, merged, self.result))
        home = Command(self.folder / "home", {"AOTC_KEY": "", **more})
        home.folder.mkdir(exist_ok=True)
        outcome = home(*words, prefix=prefix)
        assert not list(self.result.rglob(".*.aotc-*"))
        return outcome

    def names(self) -> set[str]:
        return {each.name for each in self.result.iterdir()}


@pytest.fixture
def image(lower: Path, tmp_path: Path) -> Image:
    return Image(lower, tmp_path)


def verified(folder: Path, name: str) -> str:
    """The id of an artifact, which must verify."""
    outcome = Command(folder)("verify", name, "--key", "release.pub")
    assert outcome.status == 0, outcome
    return str(outcome.document["artifact_id"])


def test_a_build_replaces_an_artifact_of_a_lower_layer(image: Image, lower: Path) -> None:
    words = ("build", "linear.onnx", "-o", "old.aotc", *KEY, "--dim", "batch=2")
    # It is of the same model and key.
    for force in ((), ("--force",)):
        assert image(*words, *force).status == 0
        assert verified(image.result, "old.aotc") == verified(lower, "other.aotc")
    assert image.names() == {each.name for each in lower.iterdir()}


def test_unpacking_replaces_an_artifact_of_a_lower_layer(image: Image, lower: Path) -> None:
    assert image("unpack", "new.zip", "-o", "old.aotc", "--force").status == 0
    assert verified(image.result, "old.aotc") == verified(lower, "other.aotc")
    assert image.names() == {each.name for each in lower.iterdir()}


def test_packing_replaces_a_file_of_a_lower_layer(image: Image, lower: Path) -> None:
    assert image("pack", "old.aotc", "-o", "new.zip", "--force").status == 0
    assert verified(image.result, "new.zip") == verified(lower, "old.aotc")


def test_what_stands_in_a_lower_layer_and_is_no_artifact_stays(image: Image) -> None:
    image("unpack", "new.zip", "-o", "home", "--force").refused("AOTC-I017", 3)
    assert (image.result / "home" / "cache").is_dir()


def test_a_cache_of_a_lower_layer_is_pruned(image: Image) -> None:
    place = image.folder / "merged" / "home" / "cache" / "aotc" / "build"
    outcome = image("cache", "prune", "--limit", "1", AOTC_CACHE=str(place))
    assert outcome.status == 0
    assert outcome.document["removed"] > 0
    assert outcome.document["kept"] == 0
    left = image.result / "home" / "cache" / "aotc" / "build" / "v1"
    assert [each for each in left.rglob("*") if each.is_file()] == [left / "lock"]


def test_a_damaged_entry_of_a_lower_layer_is_replaced(image: Image, lower: Path) -> None:
    baked = image.folder / "damaged"
    shutil.copytree(lower, baked, symlinks=True)
    image.lower = baked
    entries = list((baked / "home" / "cache" / "aotc" / "build" / "v1").rglob("index.sha256"))
    assert entries
    for each in entries:
        each.write_text("0" * 64)
    place = image.folder / "merged" / "home" / "cache" / "aotc" / "build"
    words = ("build", "linear.onnx", "-o", "new.aotc", *KEY)
    outcome = image(*words, AOTC_CACHE=str(place))
    assert outcome.status == 0
    assert "AOTC-R015" in {each["code"] for each in outcome.document["findings"]}
    # The new entry is a whole one.
    kept = Command(
        image.result, {"AOTC_CACHE": str(image.result / "home" / "cache" / "aotc" / "build")}
    )
    outcome = kept("build", "linear.onnx", "-o", "again.aotc", *KEY)
    assert outcome.document["cached"] is True


@pytest.mark.parametrize("which", ["some", pytest.param("every", marks=pytest.mark.slow)])
def test_killed_while_a_lower_layer_is_replaced(which: str, lower: Path, tmp_path: Path) -> None:
    done = in_namespace("kill", lower, tmp_path / "merged", which)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 3
