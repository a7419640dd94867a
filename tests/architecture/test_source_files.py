"""Rules for every source file."""

from __future__ import annotations

import ast
from collections import defaultdict
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

# In every open folder `base.py` says what its files are; a command's file is what the user types.
SAME = {"__init__", "base"}
TYPED = TOOLCHAIN / "aotc" / "cli" / "commands"


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


def alike(name: str) -> str:
    """A name without its plural ending, which does not distinguish files."""
    return name.removesuffix("s")


def test_names_tell_files_apart() -> None:
    places = defaultdict(set)
    for path in SOURCES:
        if path.stem not in SAME and path.parent != TYPED:
            places[alike(path.stem)].add(short(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
