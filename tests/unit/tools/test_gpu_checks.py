"""What `aotc doctor` says of GPUs, from a record of facts: no GPU is needed to judge them."""

from __future__ import annotations

from typing import Any

import pytest

from aotc.spec.command_reports import DoctorCheck, GpuState, NvidiaState, TorchCudnn
from aotc.tools.doctor import gpu_checks

H200 = GpuState(
    index=0, name="NVIDIA H200", compute_capability="9.0", memory_bytes=150 * 10**9,
    free_bytes=149 * 10**9,
)  # fmt: skip
TORCH = TorchCudnn(torch="2.11.0+cu130", distribution="nvidia-cudnn-cu13", version="9.19.0.56")


def state(**fields: Any) -> NvidiaState:
    """A host on which nothing is wrong, with other fields."""
    sound = {
        "gpus": (H200,),
        "driver": "580.95.05",
        "cuda": "13.0",
        "cudnn": "9.19.0",
        "cudnn_file": "/venv/nvidia/cudnn/lib/libcudnn.so.9",
        "cudnn_packages": ("nvidia-cudnn-cu13==9.19.0.56",),
        "torch": TORCH,
    }
    return NvidiaState(**{**sound, **fields})


def checks(needed: bool = True, **fields: Any) -> dict[str, DoctorCheck]:
    return {check.name: check for check in gpu_checks(state(**fields), needed=needed)}


def test_a_sound_host() -> None:
    found = checks()
    assert {name: check.status for name, check in found.items()} == dict.fromkeys(
        ("GPU 0", "NVIDIA driver", "cuDNN", "torch"), "ok"
    )
    assert found["GPU 0"].found == "NVIDIA H200, compute capability 9.0, 150.0 GB, 149.0 GB free"
    assert found["NVIDIA driver"].found == "580.95.05, CUDA 13.0"
    assert found["cuDNN"].found == "9.19.0, /venv/nvidia/cudnn/lib/libcudnn.so.9"
    assert not any(check.fix for check in found.values())


def test_a_host_without_a_gpu() -> None:
    (check,) = gpu_checks(NvidiaState(missing_libraries=("libcudnn.so.9",)), needed=True)
    assert (check.name, check.status, check.found) == ("GPU", "note", "no NVIDIA GPU found")


def test_a_driver_that_lists_no_gpu_is_a_problem() -> None:
    check = checks(gpus=())["GPU"]
    assert (check.status, check.fix.split(":")[0]) == ("failed", "Run nvidia-smi")
    assert "lists no GPU" in check.found
    assert checks(gpus=(), needed=False)["GPU"].status == "note"


@pytest.mark.parametrize(
    ("fields", "name", "code", "fix"),
    [
        ({"driver": "570.86.15"}, "NVIDIA driver", "AOTC-C007", "driver 580.65.06 or newer"),
        ({"driver": "580.65.05"}, "NVIDIA driver", "AOTC-C007", "driver 580.65.06 or newer"),
        (
            {"missing_libraries": ("libcublas.so.13",)},
            "CUDA libraries",
            "AOTC-C020 not found: libcublas.so.13",
            "pip install 'onnxruntime-gpu[cuda,cudnn]'",
        ),
        ({"cudnn": "9.10.2"}, "torch", "AOTC-C021", "nvidia-cudnn-cu13==9.19.0.56"),
        (
            {"cudnn_packages": ("nvidia-cudnn-cu12==9.19.0.56", "nvidia-cudnn-cu13==9.19.0.56")},
            "torch",
            "AOTC-C021",
            "nvidia-cudnn-cu13==9.19.0.56",
        ),
        ({"cudnn": None, "torch": None}, "cuDNN", "does not load", "onnxruntime-gpu[cuda,cudnn]"),
    ],
)
def test_each_problem_has_its_fix(fields: dict[str, Any], name: str, code: str, fix: str) -> None:
    found = checks(**fields)
    assert [check.name for check in found.values() if check.status == "failed"] == [name]
    assert code in found[name].found
    assert fix in found[name].fix


def test_it_is_only_noted_where_no_runtime_for_gpus_is_installed() -> None:
    found = checks(needed=False, driver="570.86.15", missing_libraries=("libcudnn.so.9",))
    assert {check.status for check in found.values()} == {"ok", "note"}
    assert "CUDA libraries" not in found


def test_torch_for_the_cpu_asks_for_nothing() -> None:
    assert "torch" not in checks(torch=None, cudnn="9.10.2")


def test_the_newest_version_that_torch_allows_is_not_guessed() -> None:
    """A torch that pins no version takes any."""
    open_pin = TorchCudnn(torch="2.11.0", distribution="nvidia-cudnn-cu13", version="")
    assert checks(torch=open_pin, cudnn="9.10.2")["torch"].status == "ok"
