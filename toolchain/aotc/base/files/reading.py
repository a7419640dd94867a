"""Reading files that others wrote: a limit on their size, digests, and the path of a model."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read

_BLOCK = 1 << 20


def read_at_most(path: Path, limit: int) -> bytes:
    """A file's bytes, at most `limit` and one more, so that the caller can refuse a larger file.

    Raises OSError.
    """
    with path.open("rb") as file:
        return file.read(limit + 1)


def file_sha256(
    path: Path,
    start: int = 0,
    length: int | None = None,
    *,
    told: Callable[[int], None] = lambda count: None,
) -> str:
    """The sha256 (hex) of `length` bytes from `start`; None or beyond the end: to the end.

    `told` is called with the size of each block that was read.
    """
    import hashlib

    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    remaining = length
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while count := file.readinto(
            buffer if remaining is None else buffer[: min(remaining, _BLOCK)]
        ):
            digest.update(buffer[:count])
            told(count)
            remaining = None if remaining is None else remaining - count
    return digest.hexdigest()


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
