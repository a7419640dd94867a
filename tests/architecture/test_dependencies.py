"""The dependency rule of the wings, as stated in `.importlinter`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

TOOLCHAIN = ROOT / "toolchain"
HEAVY = ("onnx", "onnxruntime", "numpy", "ml_dtypes")

# Each breaks the contract of that name, where it stands at the end of that file.
VIOLATIONS = {
    "A wing imports only wings below it": ("spec/versions.py", "import aotc.session.worker"),
    "What a deploy host runs to verify needs neither onnx, onnxruntime nor numpy": (
        "trust/key_loading.py",
        "def late() -> None:\n    import numpy",
    ),
    "Loading and running needs no onnx, and builds nothing": (
        "providers/base.py",
        "import onnx",
    ),
}


def lint(toolchain: Path) -> subprocess.CompletedProcess[str]:
    """Run every contract on a source tree."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as run; run()",
            "--config",
            str(ROOT / ".importlinter"),
            "--no-cache",
            "--no-logo",
        ],
        env={**os.environ, "PYTHONPATH": str(toolchain), "COLUMNS": "200", "NO_COLOR": "1"},
        cwd=toolchain,
        capture_output=True,
        text=True,
        check=False,
    )


def broken(output: str) -> set[str]:
    """Names of the broken contracts, without the count of ignored imports."""
    return {re.sub(r" BROKEN.*", "", line) for line in output.splitlines() if " BROKEN" in line}


def test_every_contract_is_kept() -> None:
    result = lint(TOOLCHAIN)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"Contracts: \d+ kept, 0 broken", result.stdout)


def test_a_violation_breaks_its_contract(tmp_path: Path) -> None:
    copy = tmp_path / "toolchain"
    shutil.copytree(TOOLCHAIN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in VIOLATIONS.values():
        with (copy / "aotc" / file).open("a", encoding="utf-8") as source:
            source.write(f"\n{text}\n")
    result = lint(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert set(VIOLATIONS) - broken(result.stdout) == set()


@pytest.mark.parametrize("wing", ["base", "spec", "host", "trust", "cli"])
def test_importing_every_module_of_a_wing_loads_nothing_heavy(wing: str) -> None:
    """In a fresh process, since a linter cannot tell an import that runs from one that may."""
    modules = [
        ".".join(path.relative_to(TOOLCHAIN).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((TOOLCHAIN / "aotc" / wing).rglob("*.py"))
    ]
    assert modules
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import importlib, sys\n"
            f"for name in {modules!r}: importlib.import_module(name)\n"
            f"print([name for name in {HEAVY!r} if name in sys.modules])",
        ],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[]\n"


def test_the_library_imports_nothing_of_the_command_line() -> None:
    """Neither where it is imported, nor where what it needs is imported with it."""
    code = (
        "import sys, aotc\n"
        "for name in aotc.__all__: getattr(aotc, name)\n"
        "print([name for name in ('typer', 'rich', 'shellingham') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "[]\n"
