"""GPU tests are run by hand, `pytest -m gpu tests/gpu`, on a machine with an NVIDIA GPU."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path

# JAX would take most of the GPU's memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Before ONNX Runtime: both then use the CUDA libraries that torch loads.
with warnings.catch_warnings(), suppress(ImportError):
    warnings.simplefilter("ignore")
    import torch  # noqa: F401

import pytest
from on_gpu import Built
from residual_artifacts import CAPTURED, EXACT, residual_artifact

from aotc.host.probe import probe


@pytest.fixture(scope="session", autouse=True)
def gpu() -> str:
    """The GPU's compute capability; without a GPU the tests are skipped, and say so.

    They fail if AOTC_GPU_REQUIRED says that a GPU is here, and this fails to find it.
    """
    found = probe(gpus=True).gpus
    if not found and os.environ.get("AOTC_GPU_REQUIRED"):
        pytest.fail("AOTC_GPU_REQUIRED is set, and no NVIDIA GPU is found")
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


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A float32 CNN whose batches 1 and 4 are captured; others up to 64 go to a dynamic variant."""
    return residual_artifact(tmp_path_factory.mktemp("captured"), CAPTURED)


@pytest.fixture(scope="session")
def without_graphs(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The same network without captured graphs, at exact sizes."""
    return residual_artifact(tmp_path_factory.mktemp("plain"), EXACT, capture="none")
