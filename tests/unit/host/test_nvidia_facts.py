"""What is read of NVIDIA's driver and libraries, and that nothing fails where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.host import nvidia_facts
from aotc.spec.command_reports import GpuState


def test_each_gpu_is_a_line() -> None:
    text = (
        "0, NVIDIA H200, 9.0, 143771, 143080\n"
        "1, NVIDIA GB10, 12.1, [N/A], [N/A]\n"
        "Unable to determine the device handle\n"
        "2, NVIDIA old, [N/A], 100, 50\n"
        "3, GRID, 8Q, 8.0, 8192, 8000\n"
    )
    assert nvidia_facts.parse_gpu_states(text) == (
        GpuState(
            index=0,
            name="NVIDIA H200",
            compute_capability="9.0",
            memory_bytes=143771 << 20,
            free_bytes=143080 << 20,
        ),
        GpuState(index=1, name="NVIDIA GB10", compute_capability="12.1"),
        GpuState(
            index=3,
            name="GRID, 8Q",
            compute_capability="8.0",
            memory_bytes=8192 << 20,
            free_bytes=8000 << 20,
        ),
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [(91900, "9.19.0"), (91002, "9.10.2"), (90100, "9.1.0"), (8907, "8.9.7")],
)
def test_versions_of_cudnn(number: int, text: str) -> None:
    assert nvidia_facts.cudnn_text(number) == text


@pytest.mark.parametrize(
    ("requirements", "found"),
    [
        (["numpy", "nvidia-cudnn-cu13==9.19.0.56; platform_system == 'Linux'"],
         ("nvidia-cudnn-cu13", "9.19.0.56")),
        (["nvidia-cudnn-cu12 (==9.1.0.70)"], ("nvidia-cudnn-cu12", "")),
        (["nvidia-cudnn-cu13>=9"], ("nvidia-cudnn-cu13", "")),
        (["numpy", "nvidia-cublas==13.0"], None),
        ([], None),
    ],
)  # fmt: skip
def test_what_torch_requires(requirements: list[str], found: tuple[str, str] | None) -> None:
    assert nvidia_facts.torch_requirement(requirements) == found


def test_packages_of_nvidia_come_before_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, stated = tmp_path / "site" / "nvidia" / "cudnn" / "lib", tmp_path / "stated"
    for folder in (package, stated):
        folder.mkdir(parents=True)
        (folder / "libcudnn.so.9").touch()
    (stated / "libcublas.so.13").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'none'}:{stated}")
    assert nvidia_facts.find_library("libcudnn.so.9") == package / "libcudnn.so.9"
    assert nvidia_facts.find_library("libcublas.so.13") == stated / "libcublas.so.13"
    assert nvidia_facts.find_library("libnothing.so.1") is None


def test_a_library_that_does_not_load_has_no_version(tmp_path: Path) -> None:
    broken = tmp_path / "libcudnn.so.9"
    broken.write_bytes(b"\x7fELF nothing")
    assert nvidia_facts.cudnn_version(broken) is None
    assert nvidia_facts.cudnn_version(tmp_path / "absent.so") is None


def test_without_a_driver_nothing_is_found_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has NVIDIA's driver")
    monkeypatch.setenv("PATH", "")
    found = nvidia_facts.nvidia_state()
    assert (found.gpus, found.driver, found.cuda) == ((), None, None)


@pytest.mark.parametrize(
    ("stated", "names"),
    [
        (None, "abc"),
        ("", ""),
        ("1", "b"),
        ("2, 0", "ca"),
        ("0,7,1", "a"),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("0,abc,1", "a"),
        ("1,,0", "b"),
        ("GPU-1c5a,0", "abc"),
    ],
)
def test_the_gpus_that_cuda_shows(stated: str | None, names: str) -> None:
    listed = [
        GpuState(index=at, name=name, compute_capability="9.0") for at, name in enumerate("abc")
    ]
    shown = nvidia_facts.visible(listed, stated)
    assert "".join(gpu.name for gpu in shown) == names
    assert [gpu.index for gpu in shown] == list(range(len(names)))
