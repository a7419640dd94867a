"""Finding models below a folder, and the test data that lies beside them."""

from __future__ import annotations

import fnmatch
import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.contract.results.model_checks import SkippedFile
from aotc.errors import AotcError
from aotc.files.artifact_layout import MANIFEST
from aotc.files.failures import cannot_read
from aotc.records import record

_SUFFIX: Final = ".onnx"
# A folder with this file is named for what it holds, as ONNX's own collections have it.
_PLAIN: Final = "model.onnx"
_SET = re.compile(r"(?:(?P<stem>.+)\.)?test_data_set_(?P<number>\d{1,6})")


@record
class FoundModel:
    """A file that may be a model, and folders of `input_N.pb` and `output_N.pb` for it."""

    name: str
    path: Path
    data: tuple[Path, ...] = ()


def find_models(
    folder: Path, pattern: str = "*"
) -> tuple[tuple[FoundModel, ...], tuple[SkippedFile, ...]]:
    """Every `*.onnx` below `folder` whose name matches `pattern`; and artifacts, which are skipped.

    Links are followed, and no folder is read twice.  `test_data_set_N` belongs to the one model of
    its folder, and `STEM.test_data_set_N` to `STEM.onnx`.  Raises AOTC-I001 where a folder cannot
    be read, or no model is found.
    """
    # Unlike Path.is_dir, this takes what may not be looked at for what is not there.
    if not os.path.isdir(folder):  # noqa: PTH112
        raise AotcError("AOTC-I001", "no such folder of models", where=str(folder))
    found: list[FoundModel] = []
    skipped: list[SkippedFile] = []
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise cannot_read(
            error,
            "a folder cannot be read, and what is in it not checked",
            str(error.filename or folder),
        )

    for place, below, files in os.walk(folder, onerror=refuse, followlinks=True):
        here = Path(place)
        state = here.stat()
        if (state.st_dev, state.st_ino) in seen:
            below.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        below.sort()
        if os.path.isfile(here / MANIFEST):  # noqa: PTH113
            skipped.append(SkippedFile(path=_name(here, folder), why="an artifact"))
            below.clear()
            continue
        models = sorted(each for each in files if each.endswith(_SUFFIX))
        for file in models:
            path = here / file
            plain = file == _PLAIN and here != folder and len(models) == 1
            found.append(
                FoundModel(
                    name=_name(here if plain else path, folder),
                    path=path,
                    data=_data(here, path.stem, below, alone=len(models) == 1),
                )
            )
    if not found:
        raise AotcError("AOTC-I001", f"no *{_SUFFIX} file is below the folder", where=str(folder))
    matching = [each for each in found if matches(each.name, pattern)]
    if not matching:
        raise AotcError(
            "AOTC-I001",
            "no model's name matches the pattern",
            where=f"--pattern {pattern}",
            expected=f"one of {len(found)}, such as {found[0].name}",
        )
    return tuple(sorted(matching, key=lambda each: each.name)), tuple(skipped)


def matches(name: str, pattern: str) -> bool:
    """Whether a glob fits a model's name, the path of its file, or the last part of either."""
    path = name if name.endswith(_SUFFIX) else f"{name}/{_PLAIN}"
    names = {each for full in (name, path) for each in (full, full.rpartition("/")[2])}
    return any(fnmatch.fnmatchcase(each, pattern) for each in names)


def user_of(path: Path) -> str:
    """Name of a model beside `path` that speaks of it, as of external data; empty: none does."""
    name = path.name.encode()
    for other in sorted(path.parent.glob(f"*{_SUFFIX}")):
        if other != path and _holds(other, name):
            return other.name
    return ""


def _holds(path: Path, text: bytes) -> bool:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            return content.find(text) >= 0
    except (OSError, ValueError):
        # It cannot be read, or is empty.
        return False


def _name(path: Path, folder: Path) -> str:
    # A name that is no UTF-8 stands in the document with escapes.
    return os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")


def _data(here: Path, stem: str, below: Sequence[str], *, alone: bool) -> tuple[Path, ...]:
    sets: list[tuple[int, Path]] = []
    for each in below:
        match = _SET.fullmatch(each)
        if match is not None and (match["stem"] == stem or (alone and match["stem"] is None)):
            sets.append((int(match["number"]), here / each))
    return tuple(path for _, path in sorted(sets))
