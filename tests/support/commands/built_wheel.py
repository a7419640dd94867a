"""The wheel of this checkout, and a Python environment in which it is installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from repository import ROOT


def build_wheel(folder: Path) -> Path:
    """The wheel, built into `folder` by the backend that pyproject.toml names."""
    return _built("wheel", "*.whl", folder)


def build_sdist(folder: Path) -> Path:
    """The source distribution, built into `folder`."""
    return _built("sdist", "*.tar.gz", folder)


def _built(kind: str, pattern: str, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob(pattern)
    return found


def base_install(folder: Path, wheel: Path) -> Path:
    """The Python of an environment with the wheel and what it requires, without any extra."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (itself,) = metadata.distributions(path=[str(packages)])
    found = {itself.name}
    left = [itself]
    while left:
        for text in left.pop().requires or ():
            need = Requirement(text)
            if need.name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
                continue
            found.add(need.name)
            left.append(metadata.distribution(need.name))
            tops = {file.parts[0] for file in left[-1].files or ()} - {"..", "__pycache__"}
            for top in tops:
                (packages / top).symlink_to(Path(str(left[-1].locate_file(top))))
    return folder / "bin" / "python"


class Installed:
    """An environment with the wheel in its site-packages, beside what the tests' own one has."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        (self.packages,) = folder.glob("lib/python*/site-packages")
        self.python = folder / "bin" / "python"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
        # Of these folders no .pth file is read, such as that of an editable aotc.
        others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (self.packages / "others.pth").write_text("".join(f"{each}\n" for each in sorted(others)))
