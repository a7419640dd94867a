"""What a path must be before a model is read from it; needs no onnx."""

from __future__ import annotations

import stat
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.failures import cannot_read


def require_model_file(path: Path) -> None:
    """Refuse what is no plain file: AOTC-I001 where nothing can be read, I002 for a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise AotcError("AOTC-I001", "no such model file", where=str(path)) from None
    except OSError as error:
        raise cannot_read(error, "cannot read the model", str(path)) from None
    if stat.S_ISDIR(mode):
        raise AotcError("AOTC-I002", "the path is a folder, not a model file", where=str(path))
    if not stat.S_ISREG(mode):
        raise AotcError("AOTC-I001", "the path is no plain file", where=str(path))
