"""The files that CONTRIBUTING tells to write fit the code as it is: what they import is there."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec

import pytest
from documented_pages import Example, Page
from repository import ROOT

PAGE = Page("CONTRIBUTING.md")
FILES = [each for each in PAGE.blocks if each.language == "python" and each.text.startswith('"""')]
# What the page itself tells to write elsewhere.
WRITTEN = {
    name for each in PAGE.blocks for name in re.findall(r"^class (\w+)", each.text, re.MULTILINE)
}
PACKAGE = ROOT / "toolchain" / "aotc"


def imports(example: Example) -> list[tuple[str, str]]:
    """Module and name of what a file imports."""
    return [
        (node.module or "", alias.name)
        for node in ast.walk(ast.parse(example.text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def test_there_is_a_file_for_each_kind() -> None:
    assert len(FILES) == 5


@pytest.mark.parametrize("example", FILES, ids=lambda each: f"line {each.line}")
def test_what_a_file_imports_is_there(example: Example) -> None:
    for module, name in imports(example):
        assert find_spec(module), module
        assert name in WRITTEN or hasattr(import_module(module), name), name


@pytest.mark.parametrize("example", FILES, ids=lambda each: f"line {each.line}")
def test_what_a_class_defines_its_base_knows(example: Example) -> None:
    found = {name: module for module, name in imports(example)}
    for node in ast.walk(ast.parse(example.text)):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            assert isinstance(base, ast.Name)
            known = dir(getattr(import_module(found[base.id]), base.id))
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    assert each.name in known


@pytest.mark.parametrize(
    "path",
    [
        "providers/base.py",
        "cli/commands/__init__.py",
        "spec/command_reports.py",
        "spec/attestation_kinds.py",
        "spec/providers.py",
        "spec/variant.py",
        "spec/target.py",
        "host/probe.py",
        "base/codes/load_codes.py",
        "pipeline/package.py",
        "pipeline/import_model.py",
        "pipeline/optimize.py",
        "pipeline/specialize.py",
    ],
)
def test_a_place_that_is_named_is_there(path: str) -> None:
    text = (ROOT / PAGE.path).read_text("utf-8")
    assert path in text
    assert (PACKAGE / path).is_file()
