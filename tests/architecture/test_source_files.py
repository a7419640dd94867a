"""Rules for every source file."""

from __future__ import annotations

import ast
import configparser
from collections import defaultdict
from pathlib import Path

import pytest
from repository import ROOT

TOOLCHAIN = ROOT / "toolchain"
PACKAGE = TOOLCHAIN / "aotc"
SOURCES = sorted(PACKAGE.rglob("*.py"))
# Names that say nothing of the subject that a module holds.
SHAPELESS = {"utils", "util", "helpers", "helper", "misc", "common", "manager", "handler"}

# In every open folder `base.py` says what its files are; a command's file is what the user types.
SAME = {"__init__", "base"}
TYPED = PACKAGE / "cli" / "commands"


def test_there_are_sources() -> None:
    assert PACKAGE / "__init__.py" in SOURCES


def short(path: Path) -> str:
    return path.relative_to(TOOLCHAIN).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_source_file(path: Path) -> None:
    assert not {path.stem, path.parent.name} & SHAPELESS, "the name does not say what is in it"
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "a module says in its docstring what it is"


def test_every_folder_of_the_package_is_a_wing() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    wings = rules["importlinter:contract:layers"]["layers"].split()
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(wings)


def test_no_wing_has_the_name_of_a_public_function() -> None:
    import aotc

    assert {path.name for path in PACKAGE.iterdir() if path.is_dir()} & set(aotc.__all__) == set()


def alike(name: str) -> str:
    """A name without its plural ending, which does not distinguish files."""
    return name.removesuffix("s")


def test_names_in_a_wing_tell_files_apart() -> None:
    places = defaultdict(set)
    for path in SOURCES:
        if path.stem not in SAME and path.parent != TYPED:
            wing = path.relative_to(PACKAGE).parts[0]
            places[wing, alike(path.stem)].add(short(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
