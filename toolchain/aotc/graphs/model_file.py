"""Checks on a path before a model is read from it; needs no onnx."""

from __future__ import annotations

import stat
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.failures import cannot_read


def require_model_file(path: Path) -> None:
    """Raise AOTC-I001 if there is no plain file to read at `path`, I002 if it is a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise AotcError("AOTC-I001", "no such model file", where=str(path)) from None
    except OSError as error:
        raise cannot_read(error, "cannot read the model", str(path)) from None
    if stat.S_ISDIR(mode):
        raise AotcError("AOTC-I002", "the path is a folder, not a model file", where=str(path))
    if not stat.S_ISREG(mode):
        raise AotcError("AOTC-I001", "the path is not a plain file", where=str(path))
