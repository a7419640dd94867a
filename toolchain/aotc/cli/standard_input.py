"""`-` as a model: what comes by standard input, kept in a file of its own while it is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.failures import cannot_write

DASH: Final = "-"
STDIN: Final = "standard input"
# Of a protobuf message, and so of a file of ONNX.
_MAX_BYTES: Final = 2**31 - 1
_BLOCK: Final = 1 << 20
# The model refers to other files: missing, too short, outside its folder, or a link.
_OTHER_FILES: Final = frozenset({"AOTC-I003", "AOTC-I004", "AOTC-I005", "AOTC-I006"})


@contextmanager
def model_given(model: Path) -> Iterator[Path]:
    """The model's path; for `-` that of a file with what standard input holds.

    Raises AOTC-I053 if that is nothing, a terminal, or too large, and I018 if it cannot be kept;
    I054 in place of an error on files that the model refers to.
    """
    if str(model) != DASH:
        yield model
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise AotcError("AOTC-I053", "there is no model on standard input", where=STDIN)
    from aotc.files.work_folders import temporary_folder

    with temporary_folder("stdin") as folder:
        kept = folder / "model.onnx"
        _keep(kept)
        try:
            yield kept
        except AotcError as error:
            raise _of_standard_input(error, folder) from None


def _keep(path: Path) -> None:
    total = 0
    try:
        with path.open("wb") as file:
            while block := sys.stdin.buffer.read(_BLOCK):
                total += len(block)
                if total > _MAX_BYTES:
                    raise AotcError(
                        "AOTC-I053",
                        "a protobuf message cannot exceed 2 GiB",
                        where=STDIN,
                        found=f"more than {_MAX_BYTES} bytes",
                    )
                file.write(block)
    except OSError as error:
        raise cannot_write(error, "cannot keep the model", str(path.parent)) from None
    if not total:
        raise AotcError("AOTC-I053", "standard input is empty", where=STDIN)


def _of_standard_input(error: AotcError, folder: Path) -> AotcError:
    """The error without the path of a file that nobody gave."""
    if error.code in _OTHER_FILES:
        return AotcError(
            "AOTC-I054",
            "the model keeps tensors in files of its own, which standard input does not bring",
            where=STDIN,
            found=error.what,
        )
    for each in (error, *error.also):
        for path in (folder / "model.onnx", Path("model.onnx")):
            each.where = each.where.replace(str(path), STDIN)
    return error
