"""The machine of a measurement: GPU, driver, CUDA, cuDNN, versions; no host names."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = (
    *("torch", "transformers", "timm", "torchvision", "triton"),
    *("onnx", "onnxscript", "onnxruntime-gpu", "onnxruntime"),
)


def describe(request: dict[str, Any]) -> Iterator[dict[str, str]]:
    """In a fresh process: what the page says of the machine."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    import aotc

    found = {"python": platform.python_version(), "aotc": aotc.__version__}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    if torch.cuda.is_available():
        found |= {
            "gpu": torch.cuda.get_device_name(0),
            "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
            "driver": _driver(),
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        }
    yield found


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return found.splitlines()[0].strip()
    return "unknown"
