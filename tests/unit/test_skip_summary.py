"""What a run ends with: every reason to skip, whoever ran the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_one(number):
    pytest.skip("there is no moon")

@pytest.mark.skipif(True, reason="there is no sun")
def test_other():
    pass

def test_that_runs():
    pass
"""
MODULE = "import pytest\npytest.importorskip('no_such_module_at_all')\n"
MARKED = """
import pytest

@pytest.fixture
def never():
    raise AssertionError("made for nothing")

@pytest.mark.openvino
def test_openvino(never):
    pass
"""


def ended(folder: Path, *words: str, **environment: str) -> list[str]:
    """The list that a run of the tests in `folder` ends with; empty where there is none."""
    shutil.copyfile(CONFTEST, folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  openvino: of its device\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, str(folder)],
        env={**os.environ, "COLUMNS": "100", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, found, rest = done.stdout.partition("what this machine could not show")
    return rest.splitlines()[1:] if found else []


@pytest.mark.parametrize("words", [("-n", "0"), ("-n", "2")])
def test_every_reason_stands_at_the_end(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_none.py").write_text(MODULE)
    assert sorted(ended(tmp_path, *words)) == [
        "    1 skipped: could not import 'no_such_module_at_all': "
        "No module named 'no_such_module_at_all'",
        "    1 skipped: there is no sun",
        "    3 skipped: there is no moon",
    ]


def test_where_nothing_is_skipped_there_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("def test_that_runs():\n    pass\n")
    assert ended(tmp_path) == []


def test_what_needs_openvino_asks_its_probe_first(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(MARKED)
    (line,) = ended(tmp_path, AOTC_HOST_WITHOUT="OpenVINOExecutionProvider")
    assert line.startswith("    1 skipped: onnxruntime-ep-openvino ")
    assert "no device" in line or "not installed" in line
