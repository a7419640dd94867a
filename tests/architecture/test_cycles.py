"""There is no cycle of imports between files or folders, counting type-only ones and `__init__`.

The contract in `.importlinter` ignores both: type-only imports never run, and `__init__` is not a
sibling.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

TOOLCHAIN = ROOT / "toolchain"


def cycles(toolchain: Path) -> list[str]:
    """The cycles in a source tree, as the script prints them."""
    result = subprocess.run(
        [sys.executable, "ci/architecture/cycles.py", str(toolchain)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(toolchain)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    assert result.returncode == (1 if result.stdout else 0)
    return result.stdout.splitlines()


def package(folder: Path, files: dict[str, str]) -> Path:
    """A tree with a package of these files."""
    for name, text in files.items():
        path = folder / "aotc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for parent in path.parents:
            if parent == folder:
                break
            (parent / "__init__.py").touch()
    return folder


def test_there_is_no_cycle() -> None:
    assert cycles(TOOLCHAIN) == []


def test_a_cycle_that_is_added_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "toolchain"
    shutil.copytree(TOOLCHAIN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = cycles(copy)
    with (copy / "aotc" / "base/registry.py").open("a", encoding="utf-8") as source:
        source.write("\nif TYPE_CHECKING:\n    import aotc.cli.main\n")
    found = set(cycles(copy)) - set(before)
    assert any("aotc.base.registry" in cycle for cycle in found if cycle.startswith("files: "))
    assert any(": base, " in cycle for cycle in found if cycle.startswith("in aotc: "))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"a.py": "import aotc.b", "b.py": ""}, [], id="none"),
        pytest.param(
            {"a.py": "import aotc.b", "b.py": "def f():\n    import aotc.a"},
            ["files: aotc.a, aotc.b", "in aotc: a, b"],
            id="two files, one when called",
        ),
        pytest.param(
            {
                "a.py": "import aotc.b",
                "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import aotc.a",
            },
            ["files: aotc.a, aotc.b", "in aotc: a, b"],
            id="for types alone",
        ),
        pytest.param(
            {"__init__.py": "from aotc.a import b", "a.py": "import aotc"},
            ["files: aotc, aotc.a"],
            id="by an __init__",
        ),
        pytest.param(
            {
                "one/a.py": "import aotc.two.a",
                "one/b.py": "",
                "two/a.py": "",
                "two/b.py": "import aotc.one.b",
            },
            ["in aotc: one, two"],
            id="folders, and no files",
        ),
        pytest.param(
            {
                "room/one/a.py": "import aotc.room.b",
                "room/b.py": "import aotc.room.one.c",
                "room/one/c.py": "",
            },
            ["in aotc.room: b, one"],
            id="a folder and a file in a room",
        ),
    ],
)
def test_a_cycle_is_told(tmp_path: Path, files: dict[str, str], expected: list[str]) -> None:
    assert cycles(package(tmp_path, files)) == expected
