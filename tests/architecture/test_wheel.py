"""The wheel has the package, its profiles and schemas, but nothing that only tests read."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from built_wheel import build_sdist, build_wheel
from repository import ROOT


def test_what_is_in_the_wheel(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
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


def test_type_checkers_are_told_of_types(tmp_path: Path) -> None:
    """By a marker, without which they take everything for `Any`."""
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        assert wheel.read("aotc/py.typed") == b""
    sdist = build_sdist(tmp_path)
    with tarfile.open(sdist) as archive:
        assert f"{sdist.name.removesuffix('.tar.gz')}/toolchain/aotc/py.typed" in archive.getnames()
