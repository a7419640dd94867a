"""Which forms a host writes that has the base install alone, and how the others are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from repository import ROOT, TOOLCHAIN

RELEASE = ROOT / "manifests" / "compat" / "0.1.0"
# A module that is None cannot be imported.
WITHOUT = """
import sys
for name in ("onnx", "onnxruntime", "numpy", "ml_dtypes", "google.protobuf", "junitparser"):
    sys.modules[name] = None
sys.modules["fast_sugiyama"] = None
from aotc.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def verify(folder: Path, *words: str, python: str = WITHOUT) -> subprocess.CompletedProcess[str]:
    """`aotc verify` of a released artifact in a Python without the extras."""
    return subprocess.run(
        [
            *(sys.executable, "-c", python, "verify", str(RELEASE / "digits.aotc")),
            *("--key", str(RELEASE / "release.pub"), *words),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_base_install_writes_all_but_junit_and_the_page(tmp_path: Path) -> None:
    names = ("r.json", "r.md", "r.sarif", "r.codequality.json")
    done = verify(tmp_path, *(word for name in names for word in ("--report", name)))
    report = json.loads((tmp_path / "r.json").read_text())
    # What this host lacks is said by the last steps.
    assert done.returncode == report["exit_status"], done
    steps = {gate["name"]: gate["status"] for gate in report["gates"]}
    assert steps["4 digests"] == "passed"
    assert all((tmp_path / name).stat().st_size for name in names)


def test_junit_asks_for_the_extra_that_brings_it(tmp_path: Path) -> None:
    done = verify(tmp_path, "--report", "r.xml", "--json")
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.returncode, error["code"]) == (3, "AOTC-I019")
    assert "junitparser" in error["what"]
    assert "[cpu]" in error["fix"]


def test_a_page_asks_for_the_extra_that_brings_it(tmp_path: Path) -> None:
    done = verify(tmp_path, "--report", "r.html", "--json")
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.returncode, error["code"]) == (3, "AOTC-I019")
    assert "[report]" in error["fix"]
    assert "fast_sugiyama" in error["what"]


def test_a_module_of_our_own_that_is_missing_asks_for_no_extra(tmp_path: Path) -> None:
    python = WITHOUT[WITHOUT.index("from aotc") :]
    python = f"import sys\nsys.modules['aotc.report.html.artifact_page'] = None\n{python}"
    done = verify(tmp_path, "--report", "r.html", "--json", python=python)
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.returncode, error["code"]) == (70, "AOTC-R999")
