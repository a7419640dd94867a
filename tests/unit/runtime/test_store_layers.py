"""A store in an image: its entries are in a lower layer and cannot be renamed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact
from file_bytes import flip_bit
from lower_layer import run_on_overlay

from aotc.runtime.store.installing import install
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private, load_public

BEGIN = """
import errno, json, os, sys
from pathlib import Path
from aotc.base.errors import AotcError
from aotc.runtime.store import pruning
from aotc.runtime.store.entries import hold
from aotc.runtime.store.installing import install
from aotc.runtime.loading import load
from aotc.trust.key_loading import load_public
root, artifact, key = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
(entry,) = root.glob("sha256-*")
try:
    entry.rename(root / "elsewhere")
except OSError as error:
    assert error.errno == errno.EXDEV
else:
    sys.exit("the layers rename folders here: nothing would be shown")
def files(folder):
    paths = [each for each in folder.rglob("*") if each.is_file()]
    return {str(each.relative_to(folder)): each.read_bytes() for each in paths}
def say(**found):
    print(json.dumps(found))
"""


class Image:
    """A store in a layer, with one artifact; `work` has the other layers."""

    def __init__(self, folder: Path) -> None:
        private, self.key = generate(folder / "a.pem")
        self.artifact = build_artifact(folder / "linear.aotc", load_private(private))
        self.store = folder / "image"
        self.entry = Path(install(self.artifact, load_public(self.key), store=self.store).folder)
        self.work = folder / "layers"

    def run(self, program: str) -> dict[str, Any]:
        said = run_on_overlay(
            self.work, self.store, BEGIN + program, str(self.artifact), str(self.key)
        )
        found: dict[str, Any] = json.loads(said)
        return found


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    yield Image(tmp_path)
    for place in tmp_path.rglob("*"):
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o700)


def damage(entry: Path) -> None:
    weights = next(entry.glob("payload/shared_assets/*/weights.bin"))
    weights.chmod(0o644)
    flip_bit(weights, 0)
    weights.chmod(0o444)


def test_prune_removes_an_entry_of_the_image(image: Image) -> None:
    found = image.run(
        """
report = pruning.prune(root, limit=0)
say(removed=report.removed, left=sorted(os.listdir(root)), again=pruning.prune(root).leftovers)
"""
    )
    assert found == {
        "removed": [image.entry.name.removeprefix("sha256-")],
        "left": [".lock"],
        "again": 0,
    }


def test_what_is_in_use_stays(image: Image) -> None:
    found = image.run(
        """
held = hold(entry)
report = pruning.prune(root, limit=0)
say(in_use=report.in_use, same=files(entry) == files(artifact))
"""
    )
    assert found == {"in_use": [image.entry.name.removeprefix("sha256-")], "same": True}


@pytest.mark.parametrize("by", ["install", "load"])
def test_a_damaged_entry_of_the_image_is_replaced(by: str, image: Image) -> None:
    damage(image.entry)
    work = {
        "install": "done = install(artifact, load_public(key), store=root).installed",
        "load": "done = not load(artifact, key=key, store=root).report.from_store",
    }
    found = image.run(
        f"""
{work[by]}
left = [each for each in os.listdir(root) if each != ".lock"]
say(done=done, same=files(entry) == files(artifact), left=left)
"""
    )
    assert found == {"done": True, "same": True, "left": [image.entry.name]}


def test_a_damaged_entry_that_is_in_use_is_refused_with_its_user(image: Image) -> None:
    damage(image.entry)
    found = image.run(
        """
held = hold(entry)
try:
    install(artifact, load_public(key), store=root)
except AotcError as error:
    whole = (entry / "payload/aotc.json").exists()
    say(code=error.code, where=error.where, found=error.found, whole=whole)
"""
    )
    assert found["code"] == "AOTC-R017"
    assert found["where"].endswith(image.entry.name)
    assert "this process" in found["found"]
    assert found["whole"]


def test_what_was_half_removed_goes_with_the_next_command(image: Image) -> None:
    """A process that is killed while it empties an entry leaves no manifest there."""
    found = image.run(
        """
child = os.fork()
if not child:
    unlinked = os.unlink
    def unlink(*words, **more):
        unlinked(*words, **more)
        os._exit(9)
    os.unlink = unlink
    pruning.prune(root, limit=0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
half = not (entry / "payload/aotc.json").exists() and entry.exists()
report = pruning.prune(root)
say(half=half, leftovers=report.leftovers, left=sorted(os.listdir(root)))
"""
    )
    assert found == {"half": True, "leftovers": 1, "left": [".lock"]}


def test_new_attestations_come_to_an_entry_of_the_image(image: Image) -> None:
    bundle = next((image.artifact / "attestations").iterdir())
    shutil.copy(bundle, bundle.with_name(f"copy-{bundle.name}"))
    found = image.run(
        """
first = next((artifact / "attestations").glob("evidence*"))
(artifact / "attestations" / "more.sigstore.json").write_bytes(first.read_bytes() + b" ")
report = install(artifact, load_public(key), store=root)
say(installed=report.installed, added=report.attestations)
"""
    )
    assert found == {"installed": False, "added": ["more.sigstore.json"]}
