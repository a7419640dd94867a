"""The schemas of Triton and KServe, out of their own Python packages, which are not installed.

Both have dependencies that this project does not: their wheels are fetched alone, by the hashes of
`requirements/server-schemas.lock`, and read as files.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fetched_wheels import fetch_wheels
from repository import ROOT

_LOCK = ROOT / "requirements" / "server-schemas.lock"
_MODELS = "kserve/models"


@pytest.fixture(scope="session")
def server_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of both wheels."""
    folder = tmp_path_factory.mktemp("server-packages")
    pinned = ("--no-deps", "--require-hashes", "--requirement", str(_LOCK))
    fetch_wheels(folder, "the schemas of Triton and KServe", *pinned)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def model_config(server_packages: Path) -> ModuleType:
    """Triton's `model_config.proto`, as protoc compiled it for its client."""
    place = server_packages / "tritonclient" / "grpc" / "model_config_pb2.py"
    found = importlib.util.spec_from_file_location("model_config_pb2", place)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    with warnings.catch_warnings():
        # It was compiled for the major version of protobuf before.
        warnings.simplefilter("ignore")
        found.loader.exec_module(module)
    return module


class KServeModels:
    """What KServe's API has, by the classes that are generated of its OpenAPI document."""

    def __init__(self, packages: Path) -> None:
        self._folder = packages / _MODELS
        assert self._folder.is_dir()

    def problems(self, document: Mapping[str, Any], model: str) -> Iterator[str]:
        """Unknown and missing fields, and values of another type; Kubernetes' own are left out."""
        types, names, needed = self._fields(model)
        known = {names[field]: type_ for field, type_ in types.items()}
        yield from (f"{model} needs {names[field]}" for field in needed - _given(document, names))
        for name, value in document.items():
            if name not in known:
                yield f"{model} has no {name}"
            else:
                yield from self._typed(value, known[name], f"{model}.{name}")

    def _typed(self, value: Any, type_: str, where: str) -> Iterator[str]:
        plain = {"str": str, "int": int, "bool": bool}
        if items := re.fullmatch(r"list\[(\w+)\]", type_):
            if not isinstance(value, list):
                yield f"{where} is no list"
            for item in value if isinstance(value, list) else ():
                yield from self._typed(item, items[1], where)
        elif type_ in plain:
            if type(value) is not plain[type_]:
                yield f"{where} is no {type_}"
        elif re.match(r"V1(alpha|beta)1", type_):
            yield from self.problems(value, type_)

    @cache  # noqa: B019
    def _fields(self, model: str) -> tuple[dict[str, str], dict[str, str], set[str]]:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", model).lower()
        text = (self._folder / f"{name}.py").read_text("utf-8")
        found = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in ("openapi_types", "attribute_map")
        }
        needed = set(re.findall(r"client_side_validation and (\w+) is None", text))
        return found["openapi_types"], found["attribute_map"], needed


def _given(document: Mapping[str, Any], names: Mapping[str, str]) -> set[str]:
    return {field for field, name in names.items() if name in document}
