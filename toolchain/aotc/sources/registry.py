"""The importers there are, by name, and the one that a source is for."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.registry import Registry
from aotc.base.text import is_utf8
from aotc.sources.base import Importer

GROUP: Final = "aotc.importers"
"""Entry points of this group name an importer's class, as a row here does."""

# The first that recognizes a source takes it.
IMPORTERS: Final = Registry(
    "importer",
    (
        ("torch", "aotc.sources.torch_program:TorchProgram"),
        ("hf", "aotc.sources.hugging_face:HuggingFace"),
        ("sklearn", "aotc.sources.sklearn_estimators:SklearnEstimator"),
        ("xgboost", "aotc.sources.boosted_trees:XGBoostModel"),
        ("lightgbm", "aotc.sources.boosted_trees:LightGBMModel"),
        ("python", "aotc.sources.python_callable:PythonCallable"),
    ),
)
# What is an ONNX model by its name is looked at no further.
_ONNX: Final = (".onnx", ".ort", ".pb", ".onnxtxt")


def importer_of(source: str | Path | bytes) -> Importer | None:
    """The importer that takes `source`; None: it is an ONNX model, or nothing that is known."""
    if isinstance(source, bytes):
        return None
    text = str(source)
    # Where neither can be a path, it is none of theirs.
    if text.lower().endswith(_ONNX) or "\0" in text or not is_utf8(text):
        return None
    for name in IMPORTERS:
        importer: Importer = IMPORTERS.load(name)()
        # What cannot be looked at is told of by who opens it.
        with contextlib.suppress(OSError):
            if importer.recognizes(text):
                return importer
    for importer in _of_others():
        with contextlib.suppress(Exception):
            if importer.recognizes(text):
                return importer
    return None


def _of_others() -> Iterator[Importer]:
    """The importers of other packages, without those that fail: any command may come by here."""
    for entry in metadata.entry_points(group=GROUP):
        found: list[Importer] = []
        with contextlib.suppress(Exception):
            found.append(entry.load()())
        yield from found


def importer_named(name: str) -> Importer:
    """The importer called `name`; raises `LookupError` if there is none."""
    if name in IMPORTERS:
        importer: Importer = IMPORTERS.load(name)()
        return importer
    for other in _of_others():
        if other.name == name:
            return other
    raise LookupError(f"there is no importer {name!r}")


def refuse_source(path: Path) -> None:
    """Raise AOTC-I002 if `path` is a framework's source, where an ONNX model is needed."""
    importer = importer_of(path)
    if importer is not None:
        what = f"this is {importer.title}, not an ONNX model"
        command = shlex.join(("aotc", "build", str(path)))
        raise AotcError("AOTC-I002", what, where=str(path), fix=f"Build it first: {command}")
