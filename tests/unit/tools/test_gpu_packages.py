"""What `aotc doctor` says of the packages that a load for CUDA wants, in environments without one.

The environment is real and has the base install; ONNX Runtime for GPUs is there by name alone, and
`nvidia-smi` is a program that prints what NVIDIA's would.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from built_wheel import base_install, build_wheel
from packaging.requirements import Requirement
from repository import ROOT

from aotc.tools.doctor import GPU_PACKAGES

SMI = """\
#!/bin/sh
case "$1" in
    *driver_version*) echo 580.95.05 ;;
    *) echo "0, NVIDIA H100, 9.0, 81559, 81000" ;;
esac
"""
MAIN = "import sys; from aotc.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Of an environment with the base install alone."""
    found = base_install(tmp_path / "venv", build_wheel(tmp_path))
    program = tmp_path / "programs" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    has(found, "onnxruntime-gpu", "1.31.1")
    return found


def packages(python: Path) -> Path:
    (found,) = python.parents[1].glob("lib/python*/site-packages")
    return found


def has(python: Path, name: str, version: str) -> None:
    """The distribution is installed there, as far as its metadata says."""
    folder = packages(python) / f"{name.replace('-', '_')}-1.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def doctor(python: Path, *, gpu: bool = True) -> tuple[bool, dict[str, dict[str, Any]]]:
    folder = python.parents[2]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HOME": str(folder)}
    if gpu:
        environment["PATH"] = f"{folder / 'programs'}:{environment['PATH']}"
    done = subprocess.run(
        [python, "-c", MAIN, "doctor", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    return report["healthy"], {check["name"]: check for check in report["checks"]}


def test_what_a_load_wants_and_is_missing_fails_on_a_host_with_a_gpu(python: Path) -> None:
    healthy, found = doctor(python)
    assert not healthy
    check = found["cuda-bindings"]
    assert (check["status"], check["found"]) == ("failed", "not installed")
    assert "To load variants with captured graphs" in check["fix"] and "[gpu]" in check["fix"]
    # Its name is there, and no library: a session would say so only later.
    assert found["onnxruntime-gpu"]["status"] == "failed"
    assert "1.31.1 does not load" in found["onnxruntime-gpu"]["found"]
    # A host that only loads does without what builds want.
    assert found["onnxscript"]["status"] == "note"


def test_nothing_of_it_fails_on_a_host_without_a_gpu(python: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has NVIDIA's driver")
    _, found = doctor(python, gpu=False)
    assert found["cuda-bindings"]["status"] == "note"
    assert found["onnxruntime-gpu"]["status"] == "ok"


@pytest.mark.parametrize(
    ("version", "source", "says"),
    [
        ("12.9.4", "", "12.9.4; aotc takes 13 and later, before 14"),
        ("14.0.0", "", "14.0.0; aotc takes 13 and later, before 14"),
        ("13.1.0", "import os; os.abort()", "13.1.0 does not load: the process was ended by sig"),
        ("13.1.0", "raise ImportError('no libcudart')", "does not load: ImportError: no libcud"),
        ("13.1.0", "", ""),
    ],
    ids=["older", "newer", "aborts", "does not import", "sound"],
)
def test_what_does_not_load_or_is_of_another_version_fails(
    python: Path, version: str, source: str, says: str
) -> None:
    has(python, "cuda-bindings", version)
    folder = packages(python) / "cuda" / "bindings"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "runtime.py").write_text(source)
    _, found = doctor(python)
    check = found["cuda-bindings"]
    assert check["status"] == ("failed" if says else "ok")
    assert says in check["found"] and bool(check["fix"]) == bool(says)


def test_the_ranges_are_those_that_the_extra_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        need.name: need.specifier
        for need in map(Requirement, project["optional-dependencies"]["gpu"])
    }
    for package in GPU_PACKAGES:
        assert str(declared[package.name]) == f"<{package.below},>={package.least}"
