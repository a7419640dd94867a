"""NVIDIA's driver: whether this machine has a GPU, what it says, and which one CUDA requires."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# The minimum Linux driver for any minor version, by CUDA's major version (NVIDIA's CUDA 13 release
# notes, table "minor version compatibility").
DRIVER_MIN: Final[Mapping[int, str]] = {13: "580.65.06"}
NVIDIA_SMI_SECONDS: Final = 10
_SHOWN: Final = "CUDA_VISIBLE_DEVICES"
# CU_STREAM_NON_BLOCKING, which is cudaStreamNonBlocking as well.
_NON_BLOCKING: Final = 1


def missing_gpu() -> str:
    """Why nothing can run on an NVIDIA GPU here; empty if there is one.

    Device files are looked for, because initializing CUDA would break the processes that a build
    forks.
    """
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg"))
    return hidden_gpus() if devices else "this machine has no NVIDIA GPU"


def hidden_gpus() -> str:
    """Which setting of this process hides all GPUs from CUDA; empty if none is known to.

    CUDA shows the devices that the variable lists up to the first that is none, such as -1 (CUDA
    C++ Programming Guide, environment variables).
    """
    shown = os.environ.get(_SHOWN)
    if shown is None or not re.match(r"\s*(-|,|$)", shown):
        return ""
    return f"{_SHOWN} is {shown!r}, which hides all GPUs"


def driver_version() -> str | None:
    """The version of the driver; None if there is none."""
    try:
        return parse_driver(Path("/proc/driver/nvidia/version").read_text("utf-8", "replace"))
    except OSError:
        lines = nvidia_smi("driver_version").split()
    return lines[0] if lines and re.fullmatch(r"\d+(\.\d+)+", lines[0]) else None


def parse_driver(text: str) -> str | None:
    """The driver version in the text of /proc/driver/nvidia/version."""
    found = re.search(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d+(?:\.\d+)+)", text)
    return found[1] if found else None


def nvidia_smi(query: str) -> str:
    """What `nvidia-smi --query-gpu` prints, as CSV with a line for each GPU; "" if it fails."""
    import shutil
    import subprocess

    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=NVIDIA_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA that the driver supports, as (major, minor); None without a driver."""
    import ctypes
    import shutil

    if not Path("/proc/driver/nvidia").exists() and shutil.which("nvidia-smi") is None:
        return None
    number = ctypes.c_int(0)
    try:
        failed = _driver().cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    # It is 1000 * major + 10 * minor.
    if failed or number.value < 1000:
        return None
    return number.value // 1000, number.value % 1000 // 10


def make_context(index: int) -> bool:
    """Make the context in which all of this process runs on the GPU `index`; whether there is one.

    It stays until the process ends, and is the calling thread's current one.  The driver takes a
    quarter of a second and needs no lock of the interpreter.  NVIDIA's own bindings would have to
    be imported first, which does.
    """
    import ctypes

    device, context = ctypes.c_int(0), ctypes.c_void_p()
    # Larger numbers would be cut.
    if not 0 <= index < 2**31:
        return False
    try:
        driver = _driver()
        return (
            not driver.cuInit(0)
            and not driver.cuDeviceGet(ctypes.byref(device), index)
            and not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            and not driver.cuCtxSetCurrent(context)
        )
    except (OSError, AttributeError):
        return False


def free_memory(index: int = 0) -> int | None:
    """Bytes of the GPU's memory that no process uses now; None without such a GPU.

    Makes the context, as `make_context` does.
    """
    import ctypes

    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if not make_context(index):
        return None
    failed = _driver().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return None if failed else free.value


def memory_taken(before: int | None, index: int = 0) -> int | None:
    """Bytes of the GPU's memory that were free `before` and are not now; None without one.

    What other processes took or gave back meanwhile is in it.
    """
    after = None if before is None else free_memory(index)
    return None if before is None or after is None else max(before - after, 0)


def make_stream(index: int) -> int | None:
    """The handle of a new stream of the GPU `index`, whose context is made; None if it fails.

    The default stream of other libraries does not wait for it.  It stays until the process ends.
    """
    import ctypes

    stream = ctypes.c_void_p()
    if not make_context(index):
        return None
    failed = _driver().cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING)
    return None if failed else stream.value


def _driver() -> Any:
    """The driver's library; raises OSError if there is none."""
    import ctypes

    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
