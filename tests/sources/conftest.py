"""A workbench for each module of tests of sources, and a framework of a few lines for them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

_TOY = Path(__file__).parent / "toy_importer.py"
_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "toyframework"
version = "1.0"

[project.entry-points."aotc.importers"]
toy = "toy_importer:Toy"

[tool.hatch.build.targets.wheel]
include = ["toy_importer.py"]
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """One that the tests of a module share: what they build has names of its own."""
    return Workbench.at(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for `.toy` sources, whose importer an installed package brings by an entry point."""
    site, project = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("toyframework")
    (project / "toy_importer.py").write_text(_TOY.read_text())
    (project / "pyproject.toml").write_text(_PROJECT)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", site, project]
    subprocess.run(command, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", str(site), prepend=":")
        assert importlib.metadata.version("toyframework") == "1.0"
        yield tmp_path_factory.mktemp("toys")
