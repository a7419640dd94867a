"""What a host has of NVIDIA at this moment; no part of an artifact, as free memory changes."""

from __future__ import annotations

from typing import Annotated

from aotc.records import record


@record
class GpuState:
    """One NVIDIA GPU that a process of CUDA sees."""

    index: Annotated[
        int,
        "CUDA's, if all GPUs are alike or CUDA_DEVICE_ORDER is PCI_BUS_ID; the driver's where "
        "CUDA_VISIBLE_DEVICES has UUIDs",
    ]
    name: str
    compute_capability: str
    memory_bytes: int | None = None
    free_bytes: Annotated[int | None, "not used by any process, at this moment"] = None


@record
class TorchCudnn:
    """The cuDNN that an installed torch asks for; read from its metadata, never imported."""

    torch: Annotated[str, "version of torch"]
    distribution: Annotated[str, "distribution of cuDNN that it requires"]
    version: Annotated[str, 'the one version that it requires; "" for any']
    loaded: Annotated[bool, "torch is imported in this process"] = False


@record
class NvidiaState:
    """GPUs, driver and libraries; None or empty where there is none."""

    gpus: tuple[GpuState, ...] = ()
    driver: str | None = None
    cuda: Annotated[str | None, "newest CUDA that the driver supports, as 13.0"] = None
    cudnn: Annotated[str | None, "version, as the library itself says"] = None
    cudnn_file: Annotated[str, "the library that a session would load"] = ""
    cudnn_packages: Annotated[tuple[str, ...], "installed distributions, as NAME==VERSION"] = ()
    missing_libraries: Annotated[tuple[str, ...], "of CUDA and cuDNN, that a session needs"] = ()
    torch: TorchCudnn | None = None
