"""GPU tests are run by hand, `pytest -m gpu tests/gpu`, on a machine with an NVIDIA GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aotc.host.probe import probe


@pytest.fixture(scope="session", autouse=True)
def gpu() -> str:
    """The GPU's compute capability; without a GPU the tests are skipped, and say so."""
    found = probe(gpus=True).gpus
    if not found:
        pytest.skip("no NVIDIA GPU is here")
    return found[0].compute_capability


@pytest.fixture(scope="session")
def elsewhere() -> Path:
    """Artifacts that a machine without a GPU built: `python tests/gpu/make_artifacts.py FOLDER`."""
    folder = os.environ.get("AOTC_GPU_ARTIFACTS")
    if not folder:
        pytest.skip("AOTC_GPU_ARTIFACTS names no folder of artifacts that were built elsewhere")
    return Path(folder)
