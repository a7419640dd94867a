"""Finds models below a folder, and the test data next to them."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.folders import MANIFEST
from aotc.base.files.reading import read_at_most
from aotc.base.records import record
from aotc.spec.command_reports import SkippedFile
from aotc.trust.references import ExternalData, InMemory, MalformedModel, references

_SUFFIX: Final = ".onnx"
_MAX_BYTES: Final = 2**31 - 1
# A folder with only this file gives the model its name, as in ONNX's own collections.
_PLAIN_NAME: Final = "model.onnx"
_TEST_DATA = re.compile(r"(?:(?P<stem>.+)\.)?test_data_set_(?P<number>\d{1,6})")


@record
class FoundModel:
    """A file that may be a model, and the folders with its `input_N.pb` and `output_N.pb`."""

    name: str
    path: Path
    data: tuple[Path, ...] = ()


def find_models(
    folder: Path, pattern: str = "*"
) -> tuple[tuple[FoundModel, ...], tuple[SkippedFile, ...]]:
    """Every `*.onnx` below `folder` whose name matches `pattern`; and the skipped artifacts.

    Links are followed, but no folder is read twice.  `test_data_set_N` belongs to the only model of
    its folder, and `STEM.test_data_set_N` to `STEM.onnx`.  Raises AOTC-I001 if a folder cannot be
    read, or no model is found.
    """
    # Unlike Path.is_dir, this returns False for what cannot be accessed.
    if not os.path.isdir(folder):  # noqa: PTH112
        raise AotcError("AOTC-I001", "no such model folder", where=str(folder))
    found: list[FoundModel] = []
    skipped: list[SkippedFile] = []
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise cannot_read(
            error,
            "a folder cannot be read, so its models cannot be checked",
            str(error.filename or folder),
        )

    for folder_path, subfolders, files in os.walk(folder, onerror=refuse, followlinks=True):
        here = Path(folder_path)
        state = here.stat()
        if (state.st_dev, state.st_ino) in seen:
            subfolders.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        subfolders.sort()
        if os.path.isfile(here / MANIFEST):  # noqa: PTH113
            skipped.append(SkippedFile(path=_name(here, folder), reason="an artifact"))
            subfolders.clear()
            continue
        models = sorted(name for name in files if name.endswith(_SUFFIX))
        for file in models:
            path = here / file
            plain = file == _PLAIN_NAME and here != folder and len(models) == 1
            found.append(
                FoundModel(
                    name=_name(here if plain else path, folder),
                    path=path,
                    data=_test_data(here, path.stem, subfolders, single=len(models) == 1),
                )
            )
    if not found:
        raise AotcError(
            "AOTC-I001", f"there is no *{_SUFFIX} file below the folder", where=str(folder)
        )
    matching = [model for model in found if matches(model.name, pattern)]
    if not matching:
        raise AotcError(
            "AOTC-I001",
            "no model's name matches the pattern",
            where=f"--pattern {pattern}",
            expected=f"one of {len(found)}, such as {found[0].name}",
        )
    return tuple(sorted(matching, key=lambda model: model.name)), tuple(skipped)


def matches(name: str, pattern: str) -> bool:
    """Whether a glob matches a model's name, the path of its file, or the last part of either."""
    path = name if name.endswith(_SUFFIX) else f"{name}/{_PLAIN_NAME}"
    names = {part for full in (name, path) for part in (full, full.rpartition("/")[2])}
    return any(fnmatch.fnmatchcase(part, pattern) for part in names)


def model_referring_to(path: Path) -> str:
    """Name of a model in the same folder that refers to `path` as external data, or ""."""
    return _users(path.parent, path.parent.stat().st_mtime_ns).get(path.name, "")


@lru_cache(maxsize=16)
def _users(folder: Path, changed: int) -> Mapping[str, str]:
    """The models of a folder by the names of files that they refer to as external data.

    Each model is read once, not once for each file that is none; `changed` tells folders apart that
    have one path.
    """
    found: dict[str, str] = {}
    for model in sorted(folder.glob(f"*{_SUFFIX}")):
        for name in _referred(model):
            if name != model.name:
                found.setdefault(name, model.name)
    return found


def _referred(model: Path) -> set[str]:
    try:
        source = InMemory(read_at_most(model, _MAX_BYTES))
        return {
            value.replace("\\", "/").rpartition("/")[2]
            for reference in references(source)
            if isinstance(reference, ExternalData)
            for key, value in reference.entries
            if key == "location"
        }
    except (OSError, MalformedModel):
        # It cannot be read, or is no model.
        return set()


def _name(path: Path, folder: Path) -> str:
    # A name that is not UTF-8 is escaped in the document.
    return os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")


def _test_data(
    here: Path, stem: str, subfolders: Sequence[str], *, single: bool
) -> tuple[Path, ...]:
    sets: list[tuple[int, Path]] = []
    for name in subfolders:
        match = _TEST_DATA.fullmatch(name)
        if match is not None and (match["stem"] == stem or (single and match["stem"] is None)):
            sets.append((int(match["number"]), here / name))
    return tuple(path for _, path in sorted(sets))
