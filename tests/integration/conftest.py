"""A workbench for each module, and one real artifact, built once for all tests that read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from built_artifact import DIGITS, BuiltArtifact
from server_schemas import model_config, server_packages
from shared_workers import build
from workbench import Workbench

from aotc.trust import key_files

__all__ = ["model_config", "server_packages"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """One that the tests of a module share: what they build has names of its own."""
    return Workbench.at(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> BuiltArtifact:
    """The digits example for this host: a portable variant, and one for this host's ISA."""
    folder = tmp_path_factory.mktemp("digits")
    private, public = key_files.generate(folder / "release.pem")
    source = DIGITS / "digits.onnx"
    report = build(source, profile="server-cpu", output=folder / "digits.aotc", key=private)
    return BuiltArtifact(path=Path(report.artifact), source=source, public_key=public)
