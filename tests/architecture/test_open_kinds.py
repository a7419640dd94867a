"""Attestation kinds and checks are each stated in one place and nowhere else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from aotc.base.codes import REASONS
from aotc.spec import attestation_kinds
from aotc.spec.attestation_kinds import KINDS, AttestationKind, Usage
from aotc.spec.variant import Requirements
from aotc.trust.checks import checks

PACKAGE = Path(__file__).resolve().parents[2] / "toolchain" / "aotc"
TABLE = Path(attestation_kinds.__file__)
CHECKS = PACKAGE / "trust" / "checks"
# Fields that no check of a host compares: what the provider itself is asked at load.
OF_LOADING = {"compatibility"}


def constants(node: ast.AST) -> set[str]:
    """The strings in a piece of code."""
    return {
        item.value
        for item in ast.walk(node)
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    }


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every file except the table of kinds, parsed."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != TABLE
    }


def test_every_usage_has_its_row() -> None:
    assert tuple(KINDS) == get_args(Usage)
    assert [kind.usage for kind in KINDS.values()] == list(KINDS)
    assert max(Counter(kind.predicate_type for kind in KINDS.values()).values()) == 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.usage)
def test_what_a_row_names_is_there(kind: AttestationKind) -> None:
    assert callable(kind.load_summary())
    if kind.record:
        names = {field.name for field in dataclasses.fields(kind.load_record())}
        assert names >= {path[0] for path in (kind.made_at, kind.artifact_id) if path}


def test_no_other_file_holds_a_predicate_type(trees: dict[str, ast.Module]) -> None:
    types = {kind.predicate_type for kind in KINDS.values()}
    assert {name for name, tree in trees.items() if types & constants(tree)} == set()


def test_no_other_file_lists_the_kinds(trees: dict[str, ast.Module]) -> None:
    lists = (ast.Tuple, ast.List, ast.Set, ast.Dict)
    found = {
        (name, node.lineno)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, lists) and len(constants(node) & set(KINDS)) > len(KINDS) / 2
    }
    assert found == set()


def read_by(path: Path) -> set[str]:
    """Fields of the requirements that a check reads."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "requirements"
    }


def test_each_file_of_checks_is_one_check_with_a_field_and_a_reason() -> None:
    files = {path for path in CHECKS.glob("*.py") if path.stem not in ("__init__", "base")}
    assert Counter(Path(inspect.getfile(item)) for item in checks().values()) == Counter(files)
    fields = {field.name for field in dataclasses.fields(Requirements)}
    assert {path.name for path in files if not read_by(path) & fields} == set()
    assert {code for code in checks() if code not in REASONS} == set()
    assert fields - set().union(*map(read_by, files)) == OF_LOADING


def test_checks_are_in_the_order_of_their_codes() -> None:
    assert list(checks()) == sorted(checks())
    assert all(check.code == code for code, check in checks().items())
