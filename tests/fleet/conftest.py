"""One cluster for all tests of fleets on Ray."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A head, and the nodes `xeon`, `epyc` and `gpu`, each with what its name says."""
    # Its sockets take no longer path.
    folder = Path(tempfile.mkdtemp(prefix="aotc-", dir="/tmp"))
    kept = dict(os.environ)
    # Ray reads the first when it is imported.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    made = Cluster(folder)
    try:
        kinds = {
            "xeon": '--resources={"xeon": 1}',
            "epyc": '--resources={"epyc": 1}',
            "gpu": "--num-gpus=1",
        }
        for name, option in kinds.items():
            made.add(name, [option])
            made.wait_for(name)
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(kept)
