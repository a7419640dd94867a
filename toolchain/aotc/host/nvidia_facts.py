"""NVIDIA's GPUs, driver and libraries as this host has them now; neither torch nor CUDA is loaded.

Nothing here raises: what cannot be found out is None or empty.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from aotc.base.records import replace
from aotc.host.nvidia import cuda_version, driver_version, nvidia_smi
from aotc.spec.command_reports import GpuState, NvidiaState, TorchCudnn

_CUDNN: Final = "libcudnn.so.9"
# What ONNX Runtime's CUDA provider for CUDA 13 is linked with, then what it opens: NVRTC compiles
# kernels of cuDNN, and cuFFT is for Fourier transforms.
LIBRARIES: Final = (
    *("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10"),
    *(_CUDNN, "libnvrtc.so.13", "libcufft.so.12"),
)
_CUDNN_PACKAGES: Final = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
_SYSTEM_FOLDERS: Final = (
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
# Of CUDA: which GPUs a process sees, and in which order.
VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_GPU_FIELDS: Final = "index,name,compute_cap,memory.total,memory.free"


def nvidia_state() -> NvidiaState:
    """What is here.  cuDNN, if it is found, is loaded into this process to ask for its version."""
    files = {name: find_library(name) for name in LIBRARIES}
    cudnn = files[_CUDNN]
    return NvidiaState(
        gpus=visible(gpus(), os.environ.get(VISIBLE_VARIABLE)),
        driver=driver_version(),
        cuda=".".join(map(str, version)) if (version := cuda_version()) else None,
        cudnn=cudnn_version(cudnn) if cudnn is not None else None,
        cudnn_file=str(cudnn or ""),
        cudnn_packages=_cudnn_packages(),
        missing_libraries=tuple(name for name, file in files.items() if file is None),
        torch=_torch_cudnn(),
    )


def gpus() -> tuple[GpuState, ...]:
    """The GPUs that the driver lists, with their free memory; () without a driver.

    Indices are CUDA's device ids if CUDA_DEVICE_ORDER is PCI_BUS_ID or all GPUs are alike, and
    CUDA_VISIBLE_DEVICES hides none.
    """
    return parse_gpu_states(nvidia_smi(_GPU_FIELDS))


def visible(listed: Sequence[GpuState], stated: str | None) -> tuple[GpuState, ...]:
    """The GPUs that CUDA shows with `stated` in CUDA_VISIBLE_DEVICES, by their indices there.

    As CUDA does, what follows an entry that is no GPU's is left out.  UUIDs are not known here:
    with any, all GPUs are as listed.
    """
    if stated is None or re.search(r"\b(?:GPU|MIG)-", stated):
        return tuple(listed)
    shown: list[GpuState] = []
    for entry in stated.split(","):
        found = [gpu for gpu in listed if str(gpu.index) == entry.strip()]
        if not found:
            break
        shown += [replace(gpu, index=len(shown)) for gpu in found]
    return tuple(shown)


def parse_gpu_states(text: str) -> tuple[GpuState, ...]:
    """GPUs from the CSV of `nvidia-smi --query-gpu=index,name,compute_cap,memory...` (in MiB)."""
    found = []
    for line in text.splitlines():
        # A name may have commas.
        index, _, rest = line.partition(",")
        stated = [field.strip() for field in (index, *rest.rsplit(",", 3))]
        if len(stated) != 5 or not stated[0].isdigit() or not re.fullmatch(r"\d+\.\d+", stated[2]):
            continue
        total, free = (int(size) << 20 if size.isdigit() else None for size in stated[3:])
        found.append(
            GpuState(
                index=int(stated[0]),
                name=stated[1],
                compute_capability=stated[2],
                memory_bytes=total,
                free_bytes=free,
            )
        )
    return tuple(found)


def find_library(name: str) -> Path | None:
    """Where a session would find one of NVIDIA's libraries; None if it is not found.

    First in NVIDIA's Python packages, then on LD_LIBRARY_PATH, then where systems keep libraries.
    """
    packages = (Path(place or ".") / "nvidia" for place in sys.path)
    folders = [folder for place in packages for folder in sorted(_listed(place, "*/lib"))]
    stated = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += [Path(folder) for folder in (*filter(None, stated), *_SYSTEM_FOLDERS)]
    # Unlike Path.is_file, this is false where a folder may not be read.
    return next((place for f in folders if os.path.isfile(place := f / name)), None)  # noqa: PTH113


def _listed(place: Path, pattern: str) -> Iterable[Path]:
    try:
        return list(place.glob(pattern))
    except OSError:
        return ()


def cudnn_version(library: Path) -> str | None:
    """The version that a cuDNN library states; None if it cannot be loaded."""
    try:
        ask = ctypes.CDLL(str(library)).cudnnGetVersion
    except (OSError, AttributeError):
        return None
    ask.restype = ctypes.c_size_t
    return cudnn_text(ask())


def cudnn_text(number: int) -> str:
    """A cuDNN version from its number: 91002 is 9.10.2, and 8907 of the older form is 8.9.7."""
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def torch_requirement(requirements: Sequence[str]) -> tuple[str, str] | None:
    """Distribution and version of cuDNN in torch's requirements; None if it requires none."""
    for requirement in requirements:
        found = re.match(r"(nvidia-cudnn-cu\d+)\s*(?:==\s*([\d.]+))?", requirement)
        if found:
            return found[1], found[2] or ""
    return None


def _torch_cudnn() -> TorchCudnn | None:
    from importlib import metadata

    try:
        torch = metadata.distribution("torch")
        required = torch_requirement(torch.requires or ())
    except (metadata.PackageNotFoundError, OSError):
        return None
    if required is None:
        return None
    return TorchCudnn(
        torch=torch.version,
        distribution=required[0],
        version=required[1],
        loaded="torch" in sys.modules,
    )


def _cudnn_packages() -> tuple[str, ...]:
    from importlib import metadata

    found = []
    for name in _CUDNN_PACKAGES:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
