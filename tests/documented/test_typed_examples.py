"""Examples pass a type checker as a user runs it: against the installed wheel, in strict mode."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from built_wheel import Installed, build_wheel
from documented_pages import Example, Page, pages
from repository import ROOT

import aotc

# Packages without types, or that these tests lack.
UNTYPED = ("onnxruntime", "torch")
EXAMPLES = [
    pytest.param(page, block, id=f"{page.path}:{block.line}")
    for page in pages()
    for block in page.blocks
    if block.language == "python"
]
WRONG = {
    'aotc.build("x.onnx", profil="edge")': "call-arg",
    "aotc.build(1)": "arg-type",
    'aotc.bench("x.aotc", runs="many")': "arg-type",
    'aotc.verify("x.aotc").authentc': "attr-defined",
    'aotc.load("x.aotc").run([1])': "arg-type",
    "aotc.nothing": "attr-defined",
}


class TypeChecker:
    """mypy on files of a folder, with the wheel and no checkout on its path."""

    def __init__(self, folder: Path, installed: Installed) -> None:
        self.folder = folder
        self.installed = installed
        self._config = folder / "mypy.ini"
        ignored = "".join(f"[mypy-{name}.*]\nignore_missing_imports = true\n" for name in UNTYPED)
        self._config.write_text(f"[mypy]\nstrict = true\n{ignored}")

    def said_of(self, *files: Path) -> list[str]:
        """What it says of `files`, by lines; the last one tells how many errors there are."""
        kept = {name: value for name, value in os.environ.items() if name[-4:] != "PATH"}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "mypy", "--config-file", str(self._config)),
                *("--python-executable", str(self.installed.python)),
                *("--cache-dir", str(self.folder / "cache"), "--hide-error-context"),
                *(file.name for file in files),
            ],
            cwd=self.folder,
            env={**kept, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> TypeChecker:
    folder = tmp_path_factory.mktemp("typed")
    installed = Installed(folder / "environment", build_wheel(folder))
    return TypeChecker(folder, installed)


def written(folder: Path, page: Page, block: Example) -> Path:
    """An example as a file, whose lines have the numbers that they have on the page."""
    name = re.sub(r"\W", "_", f"{page.path}_{block.line}")
    file = folder / f"{name}.py"
    file.write_text("\n" * block.line + block.text, "utf-8")
    return file


def test_every_example_is_typed(checker: TypeChecker) -> None:
    files = [written(checker.folder, *each.values) for each in EXAMPLES]
    assert len(files) > 8
    *said, last = checker.said_of(*files)
    assert (said, last) == ([], f"Success: no issues found in {len(files)} source files")


def test_what_is_wrong_is_an_error(checker: TypeChecker) -> None:
    file = checker.folder / "wrong.py"
    file.write_text("import aotc\n" + "\n".join(WRONG) + "\n", "utf-8")
    *said, last = checker.said_of(file)
    errors = [line.rpartition(" ")[2] for line in said if ": error: " in line]
    assert errors == [f"[{code}]" for code in WRONG.values()]
    assert last.startswith(f"Found {len(WRONG)} errors")


def test_every_name_has_a_type(checker: TypeChecker) -> None:
    names = [name for name in aotc.__all__ if name != "__version__"]
    file = checker.folder / "named.py"
    lines = [f"reveal_type(aotc.{name})" for name in names]
    lines += ['reveal_type(aotc.load("x.aotc"))', 'reveal_type(aotc.bench("x.aotc"))']
    file.write_text("\n".join(("import aotc", *lines, "")), "utf-8")
    *said, last = checker.said_of(file)
    assert last == "Success: no issues found in 1 source file"
    kinds = [line.partition("Revealed type is ")[2].strip('"') for line in said]
    assert len(kinds) == len(lines)
    unknown = [line for line, kind in zip(lines, kinds, strict=True) if kind.endswith("Any")]
    assert unknown == []
    assert re.fullmatch(r"aotc\.[\w.]+\.Model", kinds[-2])
    assert re.fullmatch(r"aotc\.[\w.]+\.BenchReport", kinds[-1])


def test_without_its_marker_the_wheel_has_no_types(checker: TypeChecker) -> None:
    file, marker = checker.folder / "unmarked.py", checker.installed.packages / "aotc" / "py.typed"
    file.write_text('import aotc\nreveal_type(aotc.load("x.aotc"))\n', "utf-8")
    marker.rename(marker.with_suffix(".away"))
    try:
        said = checker.said_of(file)
    finally:
        marker.with_suffix(".away").rename(marker)
    assert said[0].endswith("[import-untyped]")
    assert 'Revealed type is "Any"' in "\n".join(said)


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize(("page", "block"), EXAMPLES)
def test_no_example_imports_deeper(page: Page, block: Example) -> None:
    assert [name for name in imported(ast.parse(block.text)) if name.startswith("aotc.")] == []


def shown() -> list[str]:
    """What users read or copy, by its path."""
    found = [page.path for page in pages() if page.path.startswith(("README", "docs/guides"))]
    for folder in ("examples", "ci/templates"):
        found += [
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".md", ".py", ".sh", ".mjs", ".yml", ".yaml")
            # What is added to the package is written in it.
            and path.parent.name != "extending"
        ]
    return sorted(found)


@pytest.mark.parametrize("path", shown())
def test_no_private_module_is_named(path: str) -> None:
    package = ROOT / "toolchain" / "aotc"
    modules = {each.stem for each in package.iterdir() if each.suffix in ("", ".py")}
    text = (ROOT / path).read_text("utf-8")
    # Names of schemas, such as `aotc.report/1`, are no modules.
    found = set(re.findall(r"(?<![\w./-])aotc\.(\w+)\b(?!/)", text))
    assert sorted(found & modules) == []
