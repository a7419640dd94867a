"""What some examples need and a machine may lack, each asked where it is answered best."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

INDEX = "an index of packages"
OPENVINO = "OpenVINO"
_SOFTHSM = Path("/usr/lib/softhsm/libsofthsm2.so")


def _provider(name: str) -> Callable[[], str]:
    def missing() -> str:
        from aotc.providers.base import BACKENDS

        found = BACKENDS.load(name)().probe()
        return "" if found.available else found.reason

    return missing


def _gpu(*packages: str) -> Callable[[], str]:
    def missing() -> str:
        from aotc.providers.cuda import CudaBackend

        found = CudaBackend().probe()
        return _packages(*packages)() or ("" if found.runs else found.why_not or found.reason)

    return missing


def _programs(*names: str) -> Callable[[], str]:
    def missing() -> str:
        lacking = [name for name in names if shutil.which(name) is None]
        return f"{' and '.join(lacking)} cannot be found" if lacking else ""

    return missing


def _packages(*names: str) -> Callable[[], str]:
    def missing() -> str:
        lacking = [name for name in names if find_spec(name) is None]
        return f"{' and '.join(lacking)} cannot be imported" if lacking else ""

    return missing


def _index() -> str:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--dry-run", "--ignore-installed", "--no-deps", "--retries", "0", "--timeout", "5"),
            "idna",
        ],
        capture_output=True,
        check=False,
    )
    return "" if done.returncode == 0 else "pip reaches no index of packages"


def _softhsm() -> str:
    if not _SOFTHSM.is_file():
        return f"{_SOFTHSM} is not installed"
    return _programs("softhsm2-util", "pkcs11-tool", "openssl")()


NEEDS: dict[str, Callable[[], str]] = {
    OPENVINO: _provider("openvino"),
    "TensorRT for RTX": _provider("tensorrt_rtx"),
    "an NVIDIA GPU": _gpu(),
    "torch": _packages("torch", "onnxscript"),
    "torch and an NVIDIA GPU": _gpu("torch"),
    INDEX: _index,
    "openssl": _programs("openssl"),
    "jq": _programs("jq", "base64"),
    "SoftHSM": _softhsm,
    "unzip": _programs("unzip"),
    "docker-registry": _programs("docker-registry"),
    "prometheus_client": _packages("prometheus_client"),
    "onnxruntime-extensions": _packages("onnxruntime_extensions"),
}


@cache
def missing(need: str) -> str:
    """Why this machine lacks what an example needs; empty where it has it."""
    return NEEDS[need]()
