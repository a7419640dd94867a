"""What every source file keeps to, whoever writes it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from repository import ROOT

TOOLCHAIN = ROOT / "toolchain"
SOURCES = sorted(TOOLCHAIN.rglob("*.py"))
LONGEST = 400
TESTS = [path for top in ("tests", "ci", "benchmarks") for path in (ROOT / top).rglob("*.py")]
FOLDERS = sorted({path.parent for path in (*SOURCES, *TESTS)})
MOST = 20
# One file a command, and a table of facts: a stranger looks for a name.
OPEN = {"aotc/cli/commands", "aotc/backends/kernels"}
# Names that say nothing of the one concept that a file holds.
SHAPELESS = {"utils", "util", "helpers", "helper", "misc", "common", "manager", "handler"}


def test_there_are_sources() -> None:
    assert TOOLCHAIN / "aotc" / "__init__.py" in SOURCES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(TOOLCHAIN)))
def test_source_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= LONGEST, f"{lines} lines; a file holds one concept"
    assert not {path.stem, path.parent.name} & SHAPELESS, "the name does not say what is in it"
    assert ast.get_docstring(ast.parse(text)), "a module says in its docstring what it is"


def short(path: Path) -> str:
    return path.relative_to(TOOLCHAIN if path.is_relative_to(TOOLCHAIN) else ROOT).as_posix()


@pytest.mark.parametrize("folder", FOLDERS, ids=short)
def test_folder(folder: Path) -> None:
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    if short(folder) not in OPEN:
        assert len(files) <= MOST, f"{len(files)} files side by side; which subjects are they?"
