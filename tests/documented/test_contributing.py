"""CONTRIBUTING as it is followed: its five examples, in a copy, pass the project's own checks."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from documented_pages import Page
from repository import ROOT

PAGE = Page("CONTRIBUTING.md")
TEXT = (ROOT / PAGE.path).read_text("utf-8")
EXAMPLES = ROOT / "examples" / "extending"
# Where the page says that each file is written.
PLACES = {
    "drop_unused_domains.py": "graph/passes",
    "nimbus.py": "providers",
    "memory.py": "trust/checks",
    "audit.py": "spec",
    "identify.py": "cli/commands",
}
PACKAGE = ROOT / "toolchain" / "aotc"
# In the order in which the page shows them.
ROWS = [textwrap.dedent(each.text) for each in PAGE.blocks if each.language == "python"]


def test_a_reader_takes_it_in() -> None:
    assert len(TEXT.encode()) <= 8000


def test_every_example_is_linked_and_placed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PLACES)
    for name, place in PLACES.items():
        assert f"(examples/extending/{name})" in TEXT
        assert f"toolchain/aotc/{place}/" in TEXT


@pytest.mark.parametrize("name", PLACES)
def test_what_a_file_imports_is_there(name: str) -> None:
    tree = ast.parse((EXAMPLES / name).read_text("utf-8"))
    written = {found for row in ROWS for found in re.findall(r"^class (\w+)", row, re.MULTILINE)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aotc"):
            assert find_spec(node.module), node.module
            for alias in node.names:
                known = hasattr(import_module(node.module), alias.name)
                assert known or alias.name in written, alias.name


@pytest.mark.parametrize("path", sorted(set(re.findall(r"[\w/]+\.py\b", TEXT)) - set(PLACES)))
def test_a_place_that_is_named_is_there(path: str) -> None:
    if "NAME" not in path and not path.startswith("examples/"):
        assert (PACKAGE / path).is_file() or (ROOT / path).is_file()


def insert(path: Path, line: int, text: str, indent: str = "    ") -> None:
    """Insert lines after line number `line`."""
    lines = path.read_text("utf-8").splitlines()
    lines[line:line] = [f"{indent}{each}" if each else "" for each in text.splitlines()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def add_row(path: Path, table: str, row: str) -> None:
    """Add a row at the end of the tuple that is assigned to `table`."""
    for node in ast.parse(path.read_text("utf-8")).body:
        target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
        if isinstance(target, ast.Name) and target.id == table:
            assert node.end_lineno
            insert(path, node.end_lineno - 1, row)
            return
    raise AssertionError(f"{path} has no table {table}")


def add_reason(path: Path, row: str) -> None:
    """Add a reason after the last one of its letter."""
    letter = row[:7]
    last = max(
        node.end_lineno or 0
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and str(node.elts[0].value).startswith(letter[2:])
    )
    insert(path, last, row)


def add_field(path: Path, record: str, field: str) -> None:
    """Add a field at the end of a record's."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == record:
            last = max(
                each.end_lineno or 0 for each in node.body if isinstance(each, ast.AnnAssign)
            )
            insert(path, last, field)
            return
    raise AssertionError(f"{path} has no record {record}")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the repository in which the page was followed."""
    copy = tmp_path_factory.mktemp("contribution")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    package = copy / "toolchain" / "aotc"
    for name, place in PLACES.items():
        shutil.copy(EXAMPLES / name, package / place / name)
    provider, requirement, described, reason, kind, report, schema, command = ROWS
    add_row(package / "spec" / "providers.py", "KNOWN_PROVIDERS", provider)
    add_field(package / "spec" / "variant.py", "Requirements", requirement)
    add_field(package / "spec" / "target.py", "Target", described)
    add_reason(package / "base" / "codes" / "load_codes.py", reason)
    kinds = package / "spec" / "attestation_kinds.py"
    add_row(kinds, "_ROWS", kind)
    kinds.write_text(
        kinds.read_text("utf-8").replace('"reproduction"\n', '"reproduction", "audit"\n')
    )
    with (package / "spec" / "command_reports.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{report}")
    add_row(copy / "ci" / "schemas.py", "SCHEMAS", schema)
    add_row(package / "cli" / "commands" / "__init__.py", "_ROWS", command)
    for script in (
        "ci/schemas.py",
        "ci/generate_docs.py",
        "ci/architecture",
        "ci/pictures/draw_pictures.py",
    ):
        done = run(copy, script, "--write")
        assert done.returncode == 0, done.stdout + done.stderr
    yield copy


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("ruff", "check", "toolchain", "ci"),
        ("ruff", "format", "--check", "toolchain", "ci"),
        ("mypy", "toolchain"),
        ("pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/architecture"),
        ("pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/unit/trust/test_checks.py"),
        ("aotc.cli.main", "identify", "--help"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_the_examples_pass_the_checks(words: tuple[str, ...], followed: Path) -> None:
    module, *rest = words
    if rest[-1:] == ["tests/architecture"]:
        # Nothing of the copy is in a repository or an installation.
        rest += [f"--ignore=tests/architecture/test_{name}.py" for name in ("pre_commit", "wheel")]
    done = run(followed, "-m", module, *rest)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
