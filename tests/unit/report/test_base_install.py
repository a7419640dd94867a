"""Which forms a host writes that has the base install alone, and how the others are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from built_wheel import base_install, build_wheel
from drawn_artifacts import DIGITS, built, read_page, text_of
from repository import ROOT, TOOLCHAIN

ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
GATED = """\
schema: aotc.profile/1
name: gated
variants: [{name: portable, isa: baseline}]
gates: {outputs: {logits: {max_abs: 0.001}}}
"""
RELEASE = ROOT / "manifests" / "compat" / "0.1.0"
MAIN = """
import sys
from aotc.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
# A module that is None cannot be imported.
WITHOUT = f"""
import sys
for name in ("onnx", "onnxruntime", "numpy", "ml_dtypes", "google.protobuf", "junitparser"):
    sys.modules[name] = None
sys.modules["fast_sugiyama"] = None
{MAIN}
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


def test_the_base_install_writes_all_but_junit(tmp_path: Path) -> None:
    names = ("r.json", "r.md", "r.sarif", "r.codequality.json", "r.html")
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


def test_a_module_of_our_own_that_is_missing_asks_for_no_extra(tmp_path: Path) -> None:
    python = WITHOUT[WITHOUT.index("from aotc") :]
    python = f"import sys\nsys.modules['aotc.report.html.artifact_page'] = None\n{python}"
    done = verify(tmp_path, "--report", "r.html", "--json", python=python)
    (error,) = json.loads(done.stdout)["errors"]
    assert (done.returncode, error["code"]) == (70, "AOTC-R999")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment in which nothing is installed but what the wheel requires by itself."""
    folder = tmp_path_factory.mktemp("base")
    return base_install(folder / "venv", build_wheel(folder))


def inspected(python: Path, artifact: Path, folder: Path) -> dict[str, str]:
    """The text of each section of the page that `aotc inspect --html` writes there."""
    done = subprocess.run(
        [python, "-c", MAIN, "inspect", str(artifact), "--html", "page.html"],
        cwd=folder,
        env={**ENVIRONMENT, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    page = read_page((folder / "page.html").read_text("ascii"))
    return {part.get("id", ""): text_of(part) for part in page.iter("section")}


def test_a_page_of_an_artifact_needs_no_extra(python: Path, tmp_path: Path) -> None:
    """It has all but the graph and the memory over it, and says what brings these."""
    absent = subprocess.run([python, "-c", "import onnx"], capture_output=True, check=False)
    assert b"No module named 'onnx'" in absent.stderr
    said = inspected(python, RELEASE / "digits.aotc", tmp_path)
    for name in ("graph", "memory"):
        assert "Not drawn: AOTC-I019" in said[name]
        assert "need the package fast_sugiyama" in said[name]
        assert "[report]" in said[name]
    assert "portable" in said["overview"]
    assert "7: CPU 100%" in said["graph"]
    assert "61.4 kB" in said["memory"]
    assert "logits passed" in said["exactness"]
    assert "onnxruntime-optimizer" in said["passes"]
    assert "image" in said["shapes"]


def test_limits_of_gates_are_judged_without_an_extra(python: Path, tmp_path: Path) -> None:
    profile = tmp_path / "gated.yaml"
    profile.write_text(GATED)
    artifact = built(tmp_path, DIGITS, "--dim", "batch=1..8", "--profile", str(profile))
    said = inspected(python, artifact, tmp_path)
    assert "max absolute error <= 0.001" in said["exactness"]


def verified(python: Path, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit status of `aotc verify --json` of a released artifact there, and its answer."""
    done = subprocess.run(
        [
            *(python, "-c", MAIN, "verify", str(RELEASE / "digits.aotc"), "--json"),
            *("--key", str(RELEASE / "release.pub"), *words),
        ],
        cwd=folder,
        env={**ENVIRONMENT, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_authenticity_is_what_a_host_without_onnx_runtime_is_asked(
    python: Path, tmp_path: Path
) -> None:
    status, said = verified(python, tmp_path)
    assert (status, said["authentic"], said["verdict"]) == (0, True, "authentic")
    assert (said["target"], said["variants"], said["refusals"]) == ("none", [], [])
    assert said["steps"][7] == {
        "step": "8 host compatibility",
        "status": "not-run",
        "detail": "not asked: no ONNX Runtime here; --target host asks, or --target NAME",
    }
    shown = subprocess.run(
        [
            *(python, "-c", MAIN, "verify", str(RELEASE / "digits.aotc")),
            *("--key", str(RELEASE / "release.pub")),
        ],
        env={**ENVIRONMENT, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    # A long path leaves the line no room.
    headline = " ".join(shown.partition("\n\n")[0].split())
    assert headline.endswith("AUTHENTIC: whether it runs on a host was not asked")


def test_a_host_without_onnx_runtime_says_how_to_ask_when_it_is_asked(
    python: Path, tmp_path: Path
) -> None:
    status, said = verified(python, tmp_path, "--target", "host")
    assert (status, said["authentic"], said["verdict"]) == (1, True, "incompatible")
    assert said["refusals"][1]["fix"] == (
        "pip install \"onnxruntime>=1.31.0,<1.32\"; 'aotc verify' judges for another host with "
        "--target NAME, and for none with --target none"
    )
    # Of the hosts that the release knew.
    newer = (ROOT / "profiles" / "targets" / "linux-x86-64.yaml").read_text("utf-8")
    target = tmp_path / "linux-x86-64.yaml"
    target.write_text(re.sub('onnxruntime: "[0-9.]*"', 'onnxruntime: "1.31.1"', newer))
    status, said = verified(python, tmp_path, "--target", str(target))
    assert (status, said["verdict"]) == (0, "optimal")
    program = (
        "import sys, aotc; report = aotc.verify(sys.argv[1], key=sys.argv[2]); "
        "print(report.ok, report.verdict); aotc.load(sys.argv[1], key=sys.argv[2])"
    )
    done = subprocess.run(
        [python, "-c", program, str(RELEASE / "digits.aotc"), str(RELEASE / "release.pub")],
        env={**ENVIRONMENT, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True authentic\n"
    # Who loads is refused by what is missing.
    assert "AOTC-I019 aotc.load needs the package" in done.stderr.splitlines()[-1]
