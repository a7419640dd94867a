"""The sha256 of a file or of a part of it, read in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_BLOCK = 1 << 20


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
