"""The digest of a file, or of a part of one, read in blocks."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def file_sha256(path: Path, start: int = 0, length: int | None = None) -> str:
    """sha256 (hex) of `length` bytes from `start`, fewer where the file ends (None: to its end)."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    left = length
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while count := file.readinto(buffer if left is None else buffer[: min(left, _BLOCK)]):
            digest.update(buffer[:count])
            left = None if left is None else left - count
    return digest.hexdigest()
