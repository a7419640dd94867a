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

# Of a test that only uses an artifact which others use as well, and of one that builds.
_USES, _BUILDS = 1, 8
_SHARED = {"captured", "without_graphs"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`ci/gpu.sh` runs shares of the tests side by side."""
    parser.addoption("--share", help="I/N of these tests, or those that run 'alone'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a share: those of one artifact together, and as much work in each."""
    stated = config.getoption("share", None)
    if not stated:
        return
    alone = [item for item in items if item.get_closest_marker("alone")]
    if stated == "alone":
        items[:] = alone
        return
    number, count = map(int, stated.split("/"))
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item not in alone:
            shared = _SHARED & set(getattr(item, "fixturenames", ()))
            groups.setdefault(min(shared, default=item.nodeid), []).append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(count)]
    work = [0] * count
    for group in sorted(groups.values(), key=len, reverse=True):
        least = work.index(min(work))
        shares[least] += group
        work[least] += _BUILDS + _USES * (len(group) - 1)
    kept = set(shares[number - 1])
    items[:] = [item for item in items if item in kept]


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
