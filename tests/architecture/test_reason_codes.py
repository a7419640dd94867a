"""The catalogue of reason codes and the code agree, in both directions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache

from repository import ROOT

from aotc.base.codes import REASONS

PACKAGE = ROOT / "toolchain" / "aotc"
SOURCES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if (PACKAGE / "base" / "codes") not in path.parents
]
CODE = re.compile(r"AOTC-[A-Z]\d{3}")
# In the catalogue, and not yet given by any code: each with the reason why it stays.
RESERVED: dict[str, str] = {}


def named() -> dict[str, set[str]]:
    """Files that name each code, even in prose, except the catalogue."""
    found = defaultdict(set)
    for path in SOURCES:
        for code in CODE.findall(path.read_text(encoding="utf-8")):
            found[code].add(str(path.relative_to(PACKAGE)))
    return found


@cache
def given() -> set[str]:
    """Codes that are whole strings in the code, which docstrings and comments never are."""
    return {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CODE.fullmatch(node.value)
    }


def test_every_code_in_the_source_is_in_the_catalogue() -> None:
    assert {code: files for code, files in named().items() if code not in REASONS} == {}


def test_every_code_of_the_catalogue_is_given_somewhere() -> None:
    assert sorted(set(REASONS) - given() - set(RESERVED)) == []


def test_a_reserved_code_is_in_the_catalogue_and_given_nowhere() -> None:
    assert sorted(code for code in RESERVED if code not in REASONS or code in given()) == []


def test_every_reason_says_what_it_is_and_how_to_fix_it() -> None:
    for code, reason in REASONS.items():
        assert CODE.fullmatch(code)
        assert reason.title
        assert reason.fix.endswith((".", ")")), code
