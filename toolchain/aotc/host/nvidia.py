"""NVIDIA GPUs: whether this machine has one, and the driver that CUDA requires."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

# The minimum Linux driver for any minor version, by CUDA's major version (NVIDIA's CUDA 13 release
# notes, table "minor version compatibility").
DRIVER_MIN: Final[Mapping[int, str]] = {13: "580.65.06"}


def missing_gpu() -> str:
    """Why nothing can run on an NVIDIA GPU here; empty if there is one.

    Device files are looked for, because initializing CUDA would break the processes that a build
    forks.
    """
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg"))
    return "" if devices else "this machine has no NVIDIA GPU"
