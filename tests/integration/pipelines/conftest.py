"""Packages for clean environments, fetched once: what runs there reaches no index."""

from __future__ import annotations

import os
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fetched_wheels import fetch_wheels
from repository import ROOT

LOCK = ROOT / "requirements" / "dev.lock"


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that puts requirements into one folder of wheels, by the versions of the lock."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    pins = folder / "pins.txt"
    text = LOCK.read_text()
    pins.write_text("\n".join(re.findall(r"^[A-Za-z0-9_.-]+==[^ ;]+", text, re.MULTILINE)))

    def fetch(*requirements: str) -> Path:
        fetch_wheels(folder, " ".join(requirements), "--constraint", str(pins), *requirements)
        return folder

    return fetch


@pytest.fixture(scope="session")
def packages(wheelhouse: Callable[..., Path]) -> Path:
    """What aotc needs with its extras cpu and sigstore, and what builds its wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = (*project["dependencies"], *extras["cpu"], *extras["sigstore"])
    return wheelhouse(*needed, "hatchling", "editables")


@pytest.fixture
def offline(packages: Path) -> dict[str, str]:
    """The variables by which pip takes those packages and asks nobody."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages), "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def unhashed_lock(tmp_path: Path) -> str:
    """Requirements that pip finds without an index, and of which one has no hash."""
    wheel = tmp_path / "wheels" / "thing-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(
            "thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr("thing-1.dist-info/WHEEL", tags)
        file.writestr("thing-1.dist-info/RECORD", "")
    return f"--find-links {wheel.parent}\nthing==1\n"


@pytest.fixture(scope="session")
def python_on_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the `python` that a job's set-up would put on PATH: no environment of ours."""
    folder = tmp_path_factory.mktemp("python")
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for name in ("python", "python3"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{base}" "$@"\n')
        (folder / name).chmod(0o755)
    yield folder
