"""What every source file keeps to, whoever writes it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TOOLCHAIN = Path(__file__).resolve().parents[2] / "toolchain"
SOURCES = sorted(TOOLCHAIN.rglob("*.py"))
LONGEST = 400
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
