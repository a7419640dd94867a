"""An output that is a mount point cannot be exchanged: it stays, and that is said of it."""

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
    # No name of a work folder, which is gone by then.
    assert outcome.refused("AOTC-I026", 3)["where"] == place.name
    assert "mount point" in outcome.first["mend"]
    assert {each: each.read_bytes() for each in place.rglob("*") if each.is_file()} == before
    assert not aotc.leftovers()
