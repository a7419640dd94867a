"""Each compatibility check, and what the host probe reads."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aotc.trust.checks as package
from aotc.base.codes import REASONS
from aotc.host import probe
from aotc.host.nvidia import parse_driver
from aotc.spec.payload import Finding
from aotc.spec.target import Gpu, Libc, Plugin, Target
from aotc.spec.variant import Requirements
from aotc.trust.checks import checks
from aotc.trust.checks.base import at_least
from aotc.trust.compatibility import probe_host

CPU = ("CPUExecutionProvider",)
BASE = Requirements(
    os="linux",
    architecture="x86_64",
    onnxruntime_min="1.31.0",
    onnxruntime_below="1.32",
    providers=CPU,
)
HOST = Target(
    schema="aotc.target/1",
    name="box",
    libc=Libc(name="glibc", version="2.36"),
    isa=("avx", "avx2"),
    onnxruntime="1.31.1",
    providers=CPU,
    probed=True,
)
SILENT = Target(schema="aotc.target/1", name="box")
OPENVINO = Plugin(name="onnxruntime-ep-openvino", version="1.8.1")
SERVED = replace(OPENVINO, provider="OpenVINOExecutionProvider")
H200 = Gpu(name="H200", compute_capability="9.0")


def run(code: str, requirements: dict[str, Any], target: Target) -> list[tuple[str, str, str]]:
    results = checks()[code]().run(dataclasses.replace(BASE, **requirements), target)
    return [
        (result.code, "", result.what)
        if isinstance(result, Finding)
        else (result.code, result.expected, result.found)
        for result in results
    ]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder of checks, which a test damages."""
    folder = tmp_path / "checks"
    shutil.copytree(package.__path__[0], folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(package, "__path__", [str(folder)])
    return folder


def found_codes() -> list[str]:
    """Codes of the checks that are found in the folder now."""
    return list(checks.__wrapped__())


def test_a_check_whose_file_is_missing_is_not_skipped(copied: Path) -> None:
    assert found_codes() == list(checks())
    (copied / "isa.py").unlink()
    (copied / "driver.py").unlink()
    with pytest.raises(ImportError, match="does not have the checks AOTC-C004, AOTC-C007"):
        found_codes()
    shutil.rmtree(copied)
    with pytest.raises(ImportError, match="AOTC-C001, AOTC-C002"):
        found_codes()


def test_a_stray_file_is_noticed(copied: Path) -> None:
    (copied / "notes.txt").write_text("no module")
    assert found_codes() == list(checks())
    shutil.copy(copied / "isa.py", copied / "isa_old.py")
    with pytest.raises(ValueError, match="two checks have the code 'AOTC-C004'"):
        found_codes()
    sys.modules.pop(f"{package.__name__}.isa_old")


@pytest.mark.parametrize("code", checks())
def test_each_check_explains_itself(code: str) -> None:
    check = checks()[code]()
    assert check.code == code
    assert check.fix == REASONS[code].fix
    assert len(type(check).__doc__ or "") > 40
    assert check.run(BASE, HOST) == ()


CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = [
    ("AOTC-C001", {}, {"os": "darwin"}, [("AOTC-C001", "linux", "darwin")]),
    ("AOTC-C002", {}, {"architecture": "aarch64"}, [("AOTC-C002", "x86_64", "aarch64")]),
    ("AOTC-C003", {"libc": Libc(name="glibc", version="2.9")}, {}, []),
    (
        "AOTC-C003",
        {"libc": Libc(name="glibc", version="2.40")},
        {},
        [("AOTC-C003", "glibc 2.40 or newer", "glibc 2.36")],
    ),
    (
        "AOTC-C003",
        {"libc": Libc(name="glibc", version="2.17")},
        {"libc": Libc(name="musl")},
        [("AOTC-C003", "glibc 2.17", "musl")],
    ),
    (
        "AOTC-C003",
        {"libc": Libc(name="glibc", version="2.17")},
        {"libc": None},
        [("AOTC-C003", "glibc 2.17", "none known")],
    ),
    ("AOTC-C004", {"isa": ("avx",)}, {}, []),
    ("AOTC-C004", {"isa": ("avx", "avx2"), "isa_exact": True}, {}, []),
    (
        "AOTC-C004",
        {"isa": ("avx",), "isa_exact": True},
        {},
        [("AOTC-C004", "exactly avx", "a CPU with also avx2")],
    ),
    (
        "AOTC-C004",
        {"isa": ("avx", "fma"), "isa_exact": True},
        {},
        [("AOTC-C004", "exactly avx, fma", "a CPU without fma and with also avx2")],
    ),
    ("AOTC-C004", {"isa": ("avx",)}, {"isa": None}, [("AOTC-C004", "avx", "a CPU without avx")]),
    ("AOTC-C005", {}, {"onnxruntime": "1.31.9+cu13"}, []),
    ("AOTC-C005", {}, {"onnxruntime": "1.32.0"}, [("AOTC-C005", ">= 1.31.0, < 1.32", "1.32.0")]),
    ("AOTC-C005", {}, {"onnxruntime": "1.9"}, [("AOTC-C005", ">= 1.31.0, < 1.32", "1.9")]),
    (
        "AOTC-C005",
        {},
        {"onnxruntime": None, "providers": ()},
        [("AOTC-C005", ">= 1.31.0, < 1.32", "none")],
    ),
    ("AOTC-C006", {}, {"onnxruntime": None, "providers": ()}, []),
    (
        "AOTC-C006",
        {"providers": ("CUDAExecutionProvider", *CPU)},
        {},
        [("AOTC-C006", "CUDAExecutionProvider", "CPUExecutionProvider")],
    ),
    ("AOTC-C006", {"plugins": (OPENVINO,)}, {"plugins": (OPENVINO,)}, []),
    (
        "AOTC-C006",
        {"plugins": (OPENVINO,)},
        {},
        [("AOTC-C006", "onnxruntime-ep-openvino 1.8.1", "none")],
    ),
    (
        "AOTC-C006",
        {"providers": ("OpenVINOExecutionProvider", *CPU), "plugins": (SERVED,)},
        {"plugins": (SERVED,)},
        [("AOTC-C006", "OpenVINOExecutionProvider", "onnxruntime-ep-openvino 1.8.1")],
    ),
    (
        "AOTC-C006",
        {"providers": ("OpenVINOExecutionProvider", *CPU), "plugins": (SERVED,)},
        {"providers": ("OpenVINOExecutionProvider", *CPU), "plugins": (SERVED,)},
        [],
    ),
    ("AOTC-C007", {"nvidia_driver_min": "575"}, {"nvidia_driver": "580.1"}, []),
    (
        "AOTC-C007",
        {"nvidia_driver_min": "575", "cuda_major": 13},
        {"nvidia_driver": "570.1", "cuda_major": 12},
        [
            ("AOTC-C007", "NVIDIA driver 575 or newer", "570.1"),
            ("AOTC-C007", "CUDA 13", "CUDA 12"),
        ],
    ),
    (
        "AOTC-C007",
        {"nvidia_driver_min": "575"},
        {},
        [("AOTC-C007", "NVIDIA driver 575 or newer", "none")],
    ),
    ("AOTC-C008", {"compute_capabilities": ("8.9", "9.0")}, {"gpus": (H200,)}, []),
    (
        "AOTC-C008",
        {"compute_capabilities": ("8.9",)},
        {"gpus": (H200,)},
        [("AOTC-C008", "compute capability 8.9", "H200 (9.0)")],
    ),
    (
        "AOTC-C008",
        {"compute_capabilities": ("8.9",)},
        {},
        [("AOTC-C008", "compute capability 8.9", "no GPU")],
    ),
]


@pytest.mark.parametrize(("code", "requirements", "changes", "wanted"), CASES)
def test_check(
    code: str,
    requirements: dict[str, Any],
    changes: dict[str, Any],
    wanted: list[tuple[str, str, str]],
) -> None:
    assert run(code, requirements, dataclasses.replace(HOST, **changes)) == wanted


@pytest.mark.parametrize(
    ("code", "requirements", "what"),
    [
        ("AOTC-C003", {"libc": Libc(name="glibc", version="2.17")}, "C library glibc 2.17"),
        ("AOTC-C005", {}, "ONNX Runtime >= 1.31.0, < 1.32"),
        ("AOTC-C006", {}, "execution providers CPUExecutionProvider"),
        ("AOTC-C007", {"nvidia_driver_min": "575"}, "NVIDIA driver 575 or newer"),
        ("AOTC-C008", {"compute_capabilities": ("8.9",)}, "compute capability 8.9"),
    ],
)
def test_what_a_described_target_leaves_out_is_a_finding(
    code: str, requirements: dict[str, Any], what: str
) -> None:
    assert run(code, requirements, SILENT) == [("AOTC-C011", "", f"{what} is not checked")]


def test_at_least_compares_numbers() -> None:
    assert at_least("2.36", "2.9")
    assert at_least("1.31", "1.31.0")
    assert not at_least("2.9", "2.36")


def test_probe_describes_this_machine() -> None:
    found = probe.probe(gpus=False)
    assert found.probed
    assert found.name == "host"
    assert found is probe.probe(gpus=False)
    if Path("/proc/cpuinfo").exists() and found.architecture == "x86_64":
        assert found.isa is not None and "sse4_2" in found.isa


@pytest.mark.parametrize(
    ("requirements", "asked", "gpus"),
    [
        ({}, set(), ()),
        # Whatever is compiled at load runs on any GPU.
        ({"nvidia_driver_min": "575", "cuda_major": 13}, {"driver_version"}, ()),
        (
            {"nvidia_driver_min": "575", "compute_capabilities": ("9.0",)},
            {"driver_version", "name,compute_cap,memory.total"},
            ("H200",),
        ),
    ],
)
def test_the_program_that_lists_gpus_is_started_only_where_a_check_needs_them(
    requirements: dict[str, Any],
    asked: set[str],
    gpus: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\necho $1 >> {tmp_path}/asked\n"
        'case $1 in *compute_cap*) echo "H200, 9.0, 143771";; *) echo 580.159.04;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    probe.probe.cache_clear()
    try:
        needs = dataclasses.replace(BASE, **requirements)
        found = probe_host(SimpleNamespace(variants=[SimpleNamespace(requirements=needs)]))
    finally:
        probe.probe.cache_clear()
    record = tmp_path / "asked"
    queries = (
        {line.partition("=")[2] for line in record.read_text().split()}
        if record.exists()
        else set()
    )
    # A host with a driver says in /proc which it is.
    assert queries - {"driver_version"} == asked - {"driver_version"}
    assert queries <= asked
    assert tuple(gpu.name for gpu in found.gpus) == gpus
    assert (found.nvidia_driver is not None) == bool(asked)


def test_cpu_features_are_those_that_matter() -> None:
    text = "processor : 0\nflags\t\t: fpu avx2 sse4_1 amx_tile aes\nprocessor : 1\nflags : fma\n"
    assert probe.parse_isa(text, "x86_64") == ("sse4_1", "avx2", "amx_tile")
    assert probe.parse_isa("Features\t: fp asimd sve aes\n", "aarch64") == ("asimd", "sve")
    assert probe.parse_isa("", "x86_64") == ()
    assert probe.parse_isa("flags : avx", "riscv64") == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n", "550.54.15"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
            "580.159.04",
        ),
        ("something else", None),
    ],
)
def test_driver_version(text: str, version: str | None) -> None:
    assert parse_driver(text) == version


def test_gpus() -> None:
    text = "NVIDIA H200, 9.0, 143771\nNVIDIA X, [N/A], 1\nNVIDIA Y, 8.9, [N/A]\n"
    assert probe.parse_gpus(text) == (
        Gpu(name="NVIDIA H200", compute_capability="9.0", memory_bytes=143771 << 20),
        Gpu(name="NVIDIA Y", compute_capability="8.9"),
    )


def test_installed_versions_are_those_of_the_metadata() -> None:
    names = ("onnxruntime", "pytest", "cryptography", "no-such-distribution")
    found = probe.installed_versions(names)
    assert found == {name: metadata.version(name) for name in found}
    assert {"pytest", "cryptography"} <= set(found)
    assert "no-such-distribution" not in found
