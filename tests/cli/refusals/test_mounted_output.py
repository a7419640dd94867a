"""An output that is a mount point, or holds one, stays, and that is said of it before a build."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command import Command
from made_models import linear, save

ON_A_MOUNT = ("unshare", "-m", "sh", "-c", 'mount --bind there.aotc there.aotc && exec "$@"', "sh")


def test_a_build_over_a_mount_point(tmp_path: Path) -> None:
    aotc, place = Command(tmp_path), tmp_path / "there.aotc"
    save(linear(), tmp_path / "linear.onnx")
    assert aotc("build", "linear.onnx", "-o", place.name).status == 0
    if subprocess.run([*ON_A_MOUNT, "true"], cwd=tmp_path, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    before = {each: each.read_bytes() for each in place.rglob("*") if each.is_file()}
    outcome = aotc("build", "linear.onnx", "--force", "-o", place.name, prefix=ON_A_MOUNT)
    first = outcome.refused("AOTC-I017", 3)
    assert (first["where"], "is a mount point" in first["what"]) == (place.name, True)
    assert {each: each.read_bytes() for each in place.rglob("*") if each.is_file()} == before
    assert not aotc.leftovers()


def test_a_build_over_an_artifact_in_which_something_is_mounted(tmp_path: Path) -> None:
    """Removing the old artifact would remove what is mounted in it."""
    aotc, place = Command(tmp_path), tmp_path / "there.aotc"
    save(linear(), tmp_path / "linear.onnx")
    assert aotc("build", "linear.onnx", "-o", place.name).status == 0
    mine = tmp_path / "my own" / "kept"
    mine.parent.mkdir()
    mine.write_text("mine")
    mount = "mount --bind 'my own' there.aotc/attestations && exec \"$@\""
    within = ("unshare", "-m", "sh", "-c", mount, "sh")
    if subprocess.run([*within, "true"], cwd=tmp_path, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    outcome = aotc("build", "linear.onnx", "--force", "-o", place.name, prefix=within)
    assert "'attestations' mounted in it" in outcome.refused("AOTC-I017", 3)["what"]
    assert mine.read_text() == "mine"
    assert not aotc.leftovers()
