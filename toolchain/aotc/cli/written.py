"""Files that a command writes beside its answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from aotc.errors import AotcError, cannot_write


def refuse_existing(paths: Iterable[Path], force: bool) -> None:
    """Raise AOTC-I017 where one of `paths` exists, unless `force`, and I026 where it may not be."""
    for path in paths:
        if path.is_dir() or (not force and (path.exists() or path.is_symlink())):
            raise AotcError("AOTC-I017", "the output exists", where=str(path))
        if not path.absolute().parent.is_dir():
            raise AotcError(
                "AOTC-I026", "the output's folder does not exist", where=str(path.parent)
            )


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text; raises AOTC-I018 (full disk) and I026."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(error, "cannot write the file", str(path)) from None
