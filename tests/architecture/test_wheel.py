"""The wheel has the package, its profiles and schemas, but nothing that only tests read."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from repository import ROOT


def test_what_is_in_the_wheel(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("aotc/")}
        licences = {name for name in archive.namelist() if "/licenses/" in name}
        assert {name.rpartition("/")[2] for name in licences} == {"LICENSE", "NOTICE"}
        assert {name.partition("/")[0] for name in archive.namelist()} == {
            "aotc",
            wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
        }
    package = ROOT / "toolchain" / "aotc"
    sources = {path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()}
    # Caches of tools are not tracked.
    wanted = {
        path.as_posix()
        for path in sources
        if not any(part.startswith((".", "__pycache__")) for part in path.parts)
    }
    for folder, pattern in (("profiles", "**/*.yaml"), ("profiles", "*.json"), ("manifests", "*")):
        for path in (ROOT / folder).glob(pattern):
            if path.is_file():
                wanted.add(f"aotc/_{folder}/{path.relative_to(ROOT / folder).as_posix()}")
    templates = ROOT / "ci" / "templates"
    for path in templates.rglob("*"):
        if path.is_file():
            wanted.add(f"aotc/_ci/templates/{path.relative_to(templates).as_posix()}")
    assert names == wanted
