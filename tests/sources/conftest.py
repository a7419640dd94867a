"""A workbench for each module of tests of sources, and a framework of a few lines for them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

_TOY = Path(__file__).parent / "toy_importer.py"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """One that the tests of a module share: what they build has names of its own."""
    return Workbench.at(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for `.toy` sources, whose importer another package brings by an entry point."""
    site = tmp_path_factory.mktemp("site")
    (site / "toy_importer.py").write_text(_TOY.read_text())
    info = site / "toyframework-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyframework\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aotc.importers]\ntoy = toy_importer:Toy\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", str(site), prepend=":")
        assert importlib.metadata.version("toyframework") == "1.0"
        yield tmp_path_factory.mktemp("toys")
