"""A provider is one file and one row: nothing else of the toolchain names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotc.spec.providers import BY_NAME, KNOWN_PROVIDERS, PLUGIN_PACKAGES, RUNTIMES

PACKAGE = Path(__file__).resolve().parents[2] / "toolchain" / "aotc"
TABLE = PACKAGE / "spec" / "providers.py"
# Backends say what they are; the catalogue's texts name what a user may install.
FREE = ("providers", "codes")
# `cpu` alone is also a device, an extra, and what a profile falls back to.
NAMES = {*BY_NAME} - {"cpu"}
DISTRIBUTIONS = {
    *(name for row in KNOWN_PROVIDERS for name in row.distributions),
    *(package.package for package in PLUGIN_PACKAGES.values()),
    *RUNTIMES,
}
# ONNX Runtime's module is called like one of its distributions, and a hint may name that.
MODULE = "onnxruntime"
ORT_NAME = re.compile(r"\b[A-Z]\w*ExecutionProvider\b")


def sources() -> list[Path]:
    """Files that must not name a provider."""
    every = sorted(PACKAGE.rglob("*.py"))
    return [p for p in every if p != TABLE and not {*p.relative_to(PACKAGE).parts} & {*FREE}]


def strings(text: str) -> Iterator[tuple[int, str]]:
    """Line and value of all strings except docstrings, including those in f-strings."""
    tree = ast.parse(text)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def named(text: str) -> list[str]:
    """The provider names in a source."""
    found = []
    for line, value in strings(text):
        words = {value, *re.split(r"[\s'\"()=,;]+", value)}
        hits = {*ORT_NAME.findall(value), *(words & (DISTRIBUTIONS - {MODULE}))}
        hits |= {value} & NAMES
        found += [f"line {line}: {hit}" for hit in sorted(hits)]
    for first, second in re.findall(r"\"(onnxruntime)\",\s*\"(onnxruntime[\w-]+)\"", text):
        found.append(f"{first}, {second}")
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_provider_is_named(path: Path) -> None:
    assert named(path.read_text("utf-8")) == [], f"a row of {TABLE.name} says it"


@pytest.mark.parametrize(
    "text",
    [
        'x = {"CUDAExecutionProvider": 1}',
        'providers=["CPUExecutionProvider"]',
        'if backend.name == "openvino":\n    pass',
        '_ROOTS = ("onnx", "onnxruntime-gpu")',
        'f"pip install onnxruntime-ep-openvino=={version}"',
        'import_module("onnxruntime_ep_openvino")',
    ],
)
def test_a_named_provider_is_seen(text: str) -> None:
    assert named(text)


@pytest.mark.parametrize(
    "text",
    [
        '"""Of OpenVINOExecutionProvider."""',
        'name.removesuffix("ExecutionProvider")',
        '_MODULES = ("onnxruntime", "numpy")',
        'providers=("cpu",)',
    ],
)
def test_other_words_are_not(text: str) -> None:
    assert named(text) == []
