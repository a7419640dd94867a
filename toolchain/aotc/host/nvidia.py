"""GPUs of NVIDIA: whether this machine has one, and the driver that CUDA asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

# The least Linux driver for any minor version, by CUDA's major one (NVIDIA's CUDA 13 release
# notes, table "minor version compatibility").
DRIVER_MIN: Final[Mapping[int, str]] = {13: "580.65.06"}


def missing_gpu() -> str:
    """Why nothing runs on a GPU of NVIDIA's here; empty where there is one.

    A driver is looked for by its files: to initialize CUDA would break the processes that a build
    forks.
    """
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg"))
    return "" if devices else "this machine has no NVIDIA GPU"
